"""The records and contracts that every part of tpd speaks."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]
Index = slice | BoolArray | IntArray


def _read_only(values: Array) -> Array:
    seen = values.copy()  # flags can be set, and torch does not heed them
    seen.flags.writeable = False
    return seen


@dataclass(frozen=True)
class Transitions:
    """A batch of environment steps, written once by a source and read by learners and event functions.

    >>> import tpd, numpy as np
    >>> steps = tpd.Transitions(*np.zeros((6, 2)))  # observation, action, next_observation, reward, ...
    >>> len(steps), len(steps[1:])
    (2, 1)

    Observations of Dict spaces are structured arrays, one field for each key.
    Only `terminated` ends what can be expected of the future; a time limit sets `truncated`,
    and `next_observation` is then the real last observation, not the first of the next episode.
    """

    observation: Array
    """[batch, ...]"""
    action: Array
    """[batch, ...]"""
    next_observation: Array
    """[batch, ...]"""
    reward: FloatArray
    """[batch]"""
    terminated: BoolArray
    """[batch]"""
    truncated: BoolArray
    """[batch]"""
    info: Mapping[str, Array] = field(default_factory=dict)
    """[batch, ...] for each key that an outcome asked the source to keep"""
    stream: IntArray | None = None
    """[batch]: the environment copy that each step comes from, whose steps are in the order of time; None
    where the order is not known"""
    own: BoolArray | None = None
    """[batch]: whether the policy chose the action, and not exploration; None where that is not known"""

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, index: Index) -> "Transitions":
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "info"}
        kept: dict[str, Any] = {
            name: None if values is None else values[index] for name, values in columns.items()
        }
        return Transitions(**kept, info={key: value[index] for key, value in self.info.items()})

    def read_only(self) -> "Transitions":
        """A copy for functions of others to look at: what is written into it all the same reaches nobody."""
        columns = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "info"}
        seen: dict[str, Any] = {
            name: None if values is None else _read_only(values) for name, values in columns.items()
        }
        info = {key: _read_only(values) for key, values in self.info.items()}
        return Transitions(**seen, info=MappingProxyType(info))

    def describe(self, row: int) -> str:
        """One transition in words, for error messages."""
        return (
            f"observation={self.observation[row]}, action={self.action[row]}, "
            f"next_observation={self.next_observation[row]}, reward={self.reward[row]}, "
            f"terminated={bool(self.terminated[row])}"
        )


def concatenate(parts: Sequence[Transitions]) -> Transitions:
    """Join batches, in order."""
    columns: dict[str, Any] = {
        f.name: _joined([getattr(part, f.name) for part in parts])
        for f in fields(Transitions)
        if f.name != "info"
    }
    info = {key: np.concatenate([part.info[key] for part in parts]) for key in parts[0].info}
    return Transitions(**columns, info=info)


def _joined(columns: Sequence[Array | None]) -> Array | None:
    """One column; None if any part lacks it."""
    known = [column for column in columns if column is not None]
    return np.concatenate(known) if len(known) == len(columns) else None


class Policy(Protocol):
    """The policy being explained, as a black box.

    A function of observations is enough for `tpd.Explainer`; a class with these methods can also sample.

    >>> import tpd, numpy as np
    >>> from tpd.policies.tabular import TabularPolicy
    >>> drunk = TabularPolicy(np.full((16, 4), 0.25), discount=0.99)
    >>> explainer = tpd.Explainer(drunk, env="FrozenLake-v1", horizon=5)
    >>> explainer.why(explainer.play(seeds=[0])[0][0], rollouts=20).how.words
    'by 20 rollouts'
    """

    @property
    def discount(self) -> float:
        """The discount of the returns that the policy was trained for."""

    def action(self, observations: Array) -> Array:
        """[batch, ...]: the action it takes, or takes most likely."""

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        """[batch, ...]: actions drawn as the policy draws them."""

    def action_values(self, observations: Array) -> FloatArray | None:
        """[batch, num_actions]: the agent's own value estimates, where it has them."""


@runtime_checkable
class DiscretePolicy(Policy, Protocol):
    """A policy that chooses among numbered actions.

    >>> import tpd
    >>> hasattr(tpd.DiscretePolicy, "probabilities")
    True
    """

    def probabilities(self, observations: Array) -> FloatArray:
        """[batch, num_actions]: how likely each action is."""


@runtime_checkable
class RecurrentPolicy(Policy, Protocol):
    """A policy with a hidden state, which every observation carries in its last columns.

    Observation and hidden state together are what the policy's future depends on, so that is what is
    explained. The hidden state after an observation does not depend on the action taken there.

    >>> import tpd
    >>> hasattr(tpd.RecurrentPolicy, "advance")
    True
    """

    @property
    def version(self) -> int:
        """Changes when earlier hidden states are no longer valid."""

    def start(self, count: int) -> FloatArray:
        """[count, hidden state]: the hidden state with which episodes start."""

    def advance(self, observations: Array) -> FloatArray:
        """[batch, hidden state]: the state after these observations, which carry the state before."""


@runtime_checkable
class Predictor(Protocol):
    """Anything that predicts outcomes: a learner, the exact solution, a stored table.

    >>> import tpd
    >>> from tpd.predictors.unlearned import Unlearned
    >>> isinstance(Unlearned(horizon=30, outcomes=4), tpd.Predictor)
    True
    """

    @property
    def horizon(self) -> int:
        """How many steps ahead it predicts."""

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]: the expected future outcomes."""

    @property
    def tie(self) -> float:
        """Returns that differ by less, relative to the larger one, are not told apart."""

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how much data stands behind each pair; 0 means unknown, inf means exact."""


@runtime_checkable
class Learner(Predictor, Protocol):
    """A predictor that improves with transitions, at any time.

    >>> import tpd
    >>> hasattr(tpd.Learner, "update")
    True
    """

    def update(self, transitions: Transitions) -> None:
        """Learn from a batch. Its next actions come from the policy, never from the batch."""


@runtime_checkable
class FittingLearner(Learner, Protocol):
    """A learner that goes on learning from what it keeps, once all transitions have come."""

    @property
    def fit_updates(self) -> int:
        """How many updates that takes at most."""

    def fit(self, progress: Callable[[int], None], at_most: int | None = None) -> None:
        """Make the most of what was kept, counting updates for whoever watches.

        With `at_most` so many updates, after which another call goes on.
        """


@runtime_checkable
class HasMetrics(Protocol):
    """A learner with figures of its own."""

    def metrics(self) -> dict[str, float]:
        """How learning goes, since last asked."""


State = Mapping[str, Array]
"""What something has learned, as plain arrays."""


@runtime_checkable
class Resumable(Protocol):
    """Something that can be put down and taken up again, in another process, as it was."""

    def state(self) -> State:
        """All that sets it apart from a new one."""

    def restore(self, state: State) -> None:
        """Be as it was then, whatever this one is; an error says what cannot be, and may leave it half done.

        The state may come from strangers, so each array is checked before anything indexes with it.
        """


Stage = Callable[[], None]
"""A piece of work that starts from nothing but what the stages before it have left."""
TransitionsHandler = Callable[[Transitions], None]
MetricsCallback = Callable[[Mapping[str, float], int], None]
"""Takes figures by name, and the step that they belong to."""


def no_metrics(figures: Mapping[str, float], step: int) -> None:
    """For those who do not ask."""


@dataclass(frozen=True)
class Episodes:
    """Whole episodes, one after the other, each in the order of time."""

    transitions: Transitions
    """[batch]"""
    begins: IntArray
    """[episode]: where each episode starts in the batch"""

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, episode: int) -> Transitions:
        ends = [*self.begins[1:].tolist(), len(self.transitions)]
        return self.transitions[int(self.begins[episode]) : ends[episode]]


class Trainer(Protocol):
    """A policy source: trains a policy and shows its transitions to whoever listens."""

    @property
    def policy(self) -> Policy:
        """The policy as it is now; it improves while `train` runs."""

    @property
    def steps(self) -> int:
        """How many transitions `train` goes through."""

    @property
    def stages(self) -> int:
        """In how many stages, between which the training can be put down."""

    def train(
        self,
        callbacks: Iterable[TransitionsHandler] = (),
        info_keys: Sequence[str] = (),
        on_metrics: MetricsCallback = no_metrics,
        stage: int | None = None,
    ) -> None:
        """Train, showing every callback each batch of transitions, with the info they ask for.

        Through all stages, or only the one of that number, from 0 on, when those before it are done.
        """
