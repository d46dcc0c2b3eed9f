"""Explanations at one moment of a run: by rollouts if the simulator can be used there, otherwise learned."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tpd.core.bands import LEVEL
from tpd.core.beyond import Beyond, all_beyond
from tpd.core.explanation import Explanation, together
from tpd.core.intervals import trials_for
from tpd.core.types import Array, DiscretePolicy, FloatArray, IntArray
from tpd.guards.settings import number, whole_number
from tpd.policies.followed import Followed
from tpd.policies.stored import AbsentPolicy
from tpd.predictors import run_on
from tpd.predictors.pair_table import HasTable
from tpd.predictors.replayed.posterior import Posterior
from tpd.predictors.simulation import MOST_ROLLOUTS, PRECISION, Simulator
from tpd.predictors.tabular_dynamics import Future, TabularDynamics
from tpd.sources.moments import Moment
from tpd.sources.named_states import NamedState
from tpd.store.saved_runs import SavedRun

MOST_ACTIONS = 8
"""All valid actions are rolled out together if there are no more than this."""


@dataclass(frozen=True)
class Asking:
    """How many rollouts to make, and how precise they must be."""

    rollouts: int | None = None
    """Rollouts per action; 0: use the learned explainer; None: as many as the precision needs."""
    precision: float = PRECISION
    progress: Callable[[int], None] = lambda steps: None
    """Called with the number of simulator steps taken."""

    def __post_init__(self) -> None:
        number("precision", self.precision, 0.001, 0.5)
        if self.rollouts:
            whole_number("rollouts", self.rollouts, at_least=2, at_most=MOST_ROLLOUTS)

    def fixed(self) -> "Asking":
        """The same with a fixed number of rollouts: the most that the precision can need.

        Moments that are compared with each other must get the same number.
        """
        if self.rollouts is not None:
            return self
        return replace(self, rollouts=trials_for(0.5, self.precision, LEVEL, MOST_ROLLOUTS))


class Expectations:
    """Explains actions at one moment; all numbers come from one method, rollouts or the learned explainer."""

    def __init__(self, run: SavedRun, state: NamedState, asking: Asking) -> None:
        self.run, self.state = run, state
        self._rollouts = asking.rollouts
        self._rolled_out: dict[bytes, Explanation] = {}
        self._beyond: dict[bytes, Beyond] = {}
        self._simulator: Simulator | None = None
        self.reason = reason_not_to_ask(run, state, asking)
        """Why the simulator is not used; empty if it is."""
        if not self.reason:  # try the simulator with all valid actions
            try:
                self._simulator = simulator_of(run, precision=asking.precision, progress=asking.progress)
                self._roll_out(self._valid_actions())
            except Exception as error:  # the environment may raise anything
                self.leave_out(" ".join(str(error).split()) or type(error).__name__)

    @property
    def simulated(self) -> bool:
        """Whether explanations come from rollouts."""
        return self._simulator is not None

    @property
    def tie(self) -> float:
        """Relative tolerance: returns closer than this count as equal."""
        return 0.0 if self.simulated else self.run.explainer.predictor.tie

    def leave_out(self, reason: str) -> None:
        """Switch to the learned explainer, because the other side of a comparison cannot be rolled out."""
        self._simulator, self.reason = None, reason

    def explain(self, actions: Array, draws: int = 0) -> Explanation:
        """[action]: explanations by rollouts, or learned, with `draws` posterior samples if learned."""
        if self._simulator is None:
            return self.learned(actions, draws)
        self._roll_out(actions)
        return together([self._rolled_out[_key(action)] for action in actions])

    def to_the_end(self, explanation: Explanation) -> Explanation:
        """Add the return after the horizon, where it can be estimated; by rollouts, once per action."""
        if self._simulator is None:
            return self.run.explainer.to_the_end(explanation)
        if explanation.legend.reward_bound is None:
            return explanation
        if missing := [row for row, a in enumerate(explanation.actions) if _key(a) not in self._beyond]:
            found = run_on.to_the_end(self._simulator, self._moment, explanation[np.array(missing)])
            for place, row in enumerate(missing):
                self._beyond[_key(explanation.actions[row])] = found[place : place + 1]
        return replace(explanation, beyond=all_beyond([self._beyond[_key(a)] for a in explanation.actions]))

    def follow(self, followed: Followed, draws: int = 0) -> Explanation:
        """[1]: the explanation if another behaviour is followed, by rollouts or by the table."""
        run = self.run
        first = followed.first_action(run.env, run.explainer.policy, self.state.observation)
        if self._simulator is not None:
            simulator = self._simulator.but(followed=followed)
            explanation = simulator.explain(self._moment, first[None], self._rollouts)
            if explanation.legend.reward_bound is None:
                return explanation
            return replace(explanation, beyond=run_on.to_the_end(simulator, self._moment, explanation))
        if (dynamics := run.dynamics()) is None:
            raise ValueError(
                f"{followed.name}: a behaviour needs a simulator that can be forked or, for discrete states, "
                f"explainer=replayed, but there is neither: {self.reason}"
            )
        return follow_in_table(run, dynamics, self.state.observation, first, followed, draws)

    def learned(self, actions: Array, draws: int = 0) -> Explanation:
        """[action]: the learned explanations."""
        here = np.repeat(self.state.observation, len(actions), axis=0)
        explanation = self.run.explainer.explain(here, actions, draws=draws)
        return replace(explanation, action_names=self.run.env.numbered_action_names)

    def _valid_actions(self) -> Array:
        """[action]: the actions to roll out together; empty if there are too many."""
        env, space = self.run.env, self.run.env.action_space
        if not env.discrete:
            return np.zeros((0, *(space.shape or ())), space.dtype)
        actions = np.flatnonzero(self._moment.valid(env))
        return actions if len(actions) <= MOST_ACTIONS else actions[:0]

    @property
    def _moment(self) -> Moment:
        assert self.state.moment is not None
        return self.state.moment

    def _roll_out(self, actions: Array) -> None:
        missing = [action for action in actions if _key(action) not in self._rolled_out]
        if not missing:
            return
        assert self._simulator is not None
        found = self._simulator.explain(self._moment, np.stack(missing), self._rollouts)
        if found.rollouts is not None and len(found.rollouts) > 1:
            self._rollouts = len(found.rollouts)
        for row, action in enumerate(missing):
            self._rolled_out[_key(action)] = found[row : row + 1]


def follow_in_table(
    run: SavedRun, dynamics: TabularDynamics, observation: Array, first: Array, followed: Followed, draws: int
) -> Explanation:
    """[1]: the explanation for following a behaviour, from known or counted dynamics."""
    explainer = run.explainer
    policy, horizon = explainer.policy, explainer.predictor.horizon
    assert isinstance(policy, DiscretePolicy)

    def choose(step: int, states: IntArray) -> FloatArray:
        chosen = followed.probabilities(run.env, step, states)
        return policy.probabilities(states) if chosen is None else chosen

    def future(of: TabularDynamics) -> Future:
        return of.follow(int(observation[0]), int(first), choose, horizon)

    expected, unknown = future(dynamics)
    drawn = None
    table = explainer.predictor.table() if isinstance(explainer.predictor, HasTable) else None
    if draws and table is not None and table.edges is not None:
        models = Posterior(table, policy).dynamics(draws)
        drawn = np.stack([future(model).expected[None, :, :-1] for model in models])
    return Explanation(
        observations=observation,
        actions=first[None],
        expected=expected[None, :, :-1],
        running=(1 - np.cumsum(expected[:, -1]) - unknown)[None],
        support=explainer.predictor.support(observation, first[None]),
        legend=explainer.legend,
        discount=policy.discount,
        unknown=unknown[None],
        draws=drawn,
    )


def simulator_of(run: SavedRun, **settings: Any) -> Simulator:
    """A simulator that rolls out the policy of a run up to its horizon; settings as for `Simulator`."""
    horizon = run.explainer.predictor.horizon
    return Simulator(run.env, run.explainer.policy, run.outcomes(), horizon=horizon, **settings)


def without_mixing(sides: Sequence[Expectations]) -> None:
    """If one side cannot be rolled out, use the learned explainer for all sides."""
    if not all(side.simulated for side in sides):
        reason = next(side.reason for side in sides if not side.simulated)
        for side in sides:
            side.leave_out(reason)


def _key(action: Array) -> bytes:
    return np.asarray(action).tobytes()


def reason_not_to_ask(run: SavedRun, state: NamedState, asking: Asking) -> str:
    """Why the simulator cannot or need not be used at this state; empty if it is used."""
    policy = run.explainer.policy
    if asking.rollouts == 0:
        return "rollouts=0"
    if state.moment is None:
        return "rollouts start from a moment of an episode, and only an observation is given"
    if isinstance(policy, AbsentPolicy):
        return f"the agent is not available ({policy.reason})"
    if not run.env.playable:
        return f"{run.env.id} cannot be stepped"
    if asking.rollouts is None:
        support = run.explainer.predictor.support(state.observation, policy.action(state.observation))
        if np.isinf(support).all():
            return "an exact answer does not need it"
    return ""
