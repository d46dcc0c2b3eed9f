"""Shared records and protocols: Transitions, Policy, Predictor, Learner, Trainer and array types."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.floating[Any]]
IntArray = npt.NDArray[np.integer[Any]]
BoolArray = npt.NDArray[np.bool_]
Index = slice | BoolArray | IntArray
Rng = np.random.Generator


def _read_only(values: Array) -> Array:
    seen = values.copy()  # the flag alone does not protect: it can be reset, and torch ignores it
    seen.flags.writeable = False
    return seen


@dataclass(frozen=True)
class Transitions:
    """A batch of environment steps. A source writes it once; learners and event functions read it.

    >>> import tpd, numpy as np
    >>> steps = tpd.Transitions(*np.zeros((6, 2)))  # observation, action, next_observation, reward, ...
    >>> len(steps), len(steps[1:])
    (2, 1)

    Observations of Dict spaces are structured arrays, one field for each key.
    Only `terminated` means that nothing follows. A time limit sets `truncated`; `next_observation` is then
    the true last observation, not the first one of the next episode.
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
    """[batch, ...] for each key in some outcome's `info_keys`"""
    stream: IntArray | None = None
    """[batch]: the index of the environment copy that made the step; steps of one copy are in time order.
    None if the order is unknown"""
    own: BoolArray | None = None
    """[batch]: whether the policy chose the action, not exploration; None if that is unknown"""

    def __len__(self) -> int:
        return len(self.reward)

    def __getitem__(self, index: Index) -> "Transitions":
        return self._changed(lambda values: values[index])

    def read_only(self) -> "Transitions":
        """A read-only copy for user functions. Even if they write to it, the original does not change."""
        seen = self._changed(_read_only)
        return replace(seen, info=MappingProxyType(seen.info))

    def _changed(self, change: Callable[[Array], Array]) -> "Transitions":
        columns = {f.name: getattr(self, f.name) for f in fields(Transitions) if f.name != "info"}
        changed: dict[str, Any] = {n: None if c is None else change(c) for n, c in columns.items()}
        return Transitions(**changed, info={key: change(values) for key, values in self.info.items()})

    def describe(self, row: int) -> str:
        """One transition as text, for error messages."""
        return (
            f"observation={self.observation[row]}, action={self.action[row]}, "
            f"next_observation={self.next_observation[row]}, reward={self.reward[row]}, "
            f"terminated={bool(self.terminated[row])}"
        )


def concatenate(parts: Sequence[Transitions]) -> Transitions:
    """Concatenate batches, in order."""
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
        """[batch, ...]: the deterministic or most likely action."""

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        """[batch, ...]: actions sampled from the policy."""

    def action_values(self, observations: Array) -> FloatArray | None:
        """[batch, num_actions]: the agent's own value estimates; None if it has none."""


@runtime_checkable
class DiscretePolicy(Policy, Protocol):
    """A policy that chooses among numbered actions.

    >>> import tpd
    >>> hasattr(tpd.DiscretePolicy, "probabilities")
    True
    """

    def probabilities(self, observations: Array) -> FloatArray:
        """[batch, num_actions]: the probability of each action."""


@runtime_checkable
class RecurrentPolicy(Policy, Protocol):
    """A policy with a hidden state, which is appended to every observation as its last columns.

    The policy's future depends on observation and hidden state together, so both are explained as one state.
    The next hidden state depends on the observation, not on the action taken there.

    >>> import tpd
    >>> hasattr(tpd.RecurrentPolicy, "advance")
    True
    """

    @property
    def version(self) -> int:
        """Changes when earlier hidden states are no longer valid."""

    def start(self, count: int) -> FloatArray:
        """[count, hidden state]: the hidden state at the start of an episode."""

    def advance(self, observations: Array) -> FloatArray:
        """[batch, hidden state]: the next hidden state; the observations contain the current one."""


def hidden_size(policy: Policy) -> int:
    """The size of a recurrent policy's hidden state; 0 for other policies."""
    return policy.start(1).shape[1] if isinstance(policy, RecurrentPolicy) else 0


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
        """Relative tolerance: returns that differ by less count as equal."""

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: number of transitions behind each prediction; 0 means unknown, inf means exact."""


@runtime_checkable
class Learner(Predictor, Protocol):
    """A predictor that learns from batches of transitions.

    >>> import tpd
    >>> hasattr(tpd.Learner, "update")
    True
    """

    def update(self, transitions: Transitions) -> None:
        """Learn from a batch. Next actions in its targets come from the policy, never from the batch."""


@runtime_checkable
class FittingLearner(Learner, Protocol):
    """A learner that keeps transitions, and makes further updates on them after the last `update` call."""

    @property
    def fit_updates(self) -> int:
        """The maximum number of updates in `fit`."""

    def fit(self, progress: Callable[[int], None], at_most: int | None = None) -> None:
        """Train on the kept transitions; `progress` is called with the number of updates done.

        `at_most` limits the updates of this call; the next call continues.
        """


@runtime_checkable
class HasMetrics(Protocol):
    """A learner that reports training metrics."""

    def metrics(self) -> dict[str, float]:
        """Training metrics since the last call."""


State = Mapping[str, Array]
"""The state of a learner or trainer as plain arrays, for checkpoints."""


@runtime_checkable
class Resumable(Protocol):
    """An object that can be saved to a checkpoint and restored in another process."""

    def state(self) -> State:
        """Everything that a newly made object lacks."""

    def restore(self, state: State) -> None:
        """Overwrite this object with a saved state. If it raises, the object may be partly overwritten.

        The state may be untrusted, so each array is checked before it is used as an index.
        """


Stage = Callable[[], None]
"""A piece of work that depends only on the results of earlier stages."""
TransitionsHandler = Callable[[Transitions], None]
Handlers = Sequence[TransitionsHandler]
MetricsCallback = Callable[[Mapping[str, float], int], None]
"""Called with metrics by name, and their step."""


def no_metrics(figures: Mapping[str, float], step: int) -> None:
    """A `MetricsCallback` that ignores all metrics."""


@dataclass(frozen=True)
class Episodes:
    """Complete episodes as one batch of transitions, each in time order."""

    transitions: Transitions
    """[batch]"""
    begins: IntArray
    """[episode]: the index of each episode's first transition in the batch"""

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, episode: int) -> Transitions:
        ends = [*self.begins[1:].tolist(), len(self.transitions)]
        return self.transitions[int(self.begins[episode]) : ends[episode]]


class Trainer(Protocol):
    """A policy source: trains a policy and passes its transitions to callbacks."""

    @property
    def policy(self) -> Policy:
        """The current policy; it improves while `train` runs."""

    @property
    def steps(self) -> int:
        """The number of transitions in `train`."""

    @property
    def stages(self) -> int:
        """The number of stages; training can be interrupted and resumed between stages."""

    def train(
        self,
        callbacks: Iterable[TransitionsHandler] = (),
        info_keys: Sequence[str] = (),
        on_metrics: MetricsCallback = no_metrics,
        stage: int | None = None,
    ) -> None:
        """Train all stages, or only `stage` (from 0); pass every batch, with `info_keys`, to callbacks."""
