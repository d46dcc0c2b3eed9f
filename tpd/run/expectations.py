"""What is expected at a place of a run: by rollouts where the simulator can be asked, else as learned."""

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
"""All valid actions are rolled out at once where there are no more of them."""


@dataclass(frozen=True)
class Asking:
    """How the simulator is to be asked."""

    rollouts: int | None = None
    """Of each action; 0 does without, None makes as many as the precision needs."""
    precision: float = PRECISION
    progress: Callable[[int], None] = lambda steps: None
    """Is told how many steps the simulator has made."""

    def __post_init__(self) -> None:
        number("precision", self.precision, 0.001, 0.5)
        if self.rollouts:
            whole_number("rollouts", self.rollouts, at_least=2, at_most=MOST_ROLLOUTS)

    def fixed(self) -> "Asking":
        """For places that are compared with each other: as many as the precision can need at all."""
        if self.rollouts is not None:
            return self
        return replace(self, rollouts=trials_for(0.5, self.precision, LEVEL, MOST_ROLLOUTS))


class Expectations:
    """Answers for one place; every number of an answer is obtained in the same way."""

    def __init__(self, run: SavedRun, state: NamedState, asking: Asking) -> None:
        self.run = run
        self.state = state
        self._rollouts = asking.rollouts
        self._rolled_out: dict[bytes, Explanation] = {}
        self._beyond: dict[bytes, Beyond] = {}
        self._simulator: Simulator | None = None
        self.reason = reason_not_to_ask(run, state, asking)
        """Why the simulator is not asked; empty where it is."""
        if not self.reason:
            self._ask_once(asking)

    @property
    def simulated(self) -> bool:
        """Whether the answers are by rollouts."""
        return self._simulator is not None

    @property
    def tie(self) -> float:
        """Returns that differ by less, relative to the larger one, are not told apart."""
        return 0.0 if self.simulated else self.run.explainer.predictor.tie

    def leave_out(self, reason: str) -> None:
        """Do without the simulator, whose answers would be compared with learned ones."""
        self._simulator, self.reason = None, reason

    def explain(self, actions: Array, draws: int = 0) -> Explanation:
        """[action]: by rollouts, or learned."""
        if self._simulator is None:
            return self.learned(actions, draws)
        self._roll_out(actions)
        return together([self._rolled_out[_key(action)] for action in actions])

    def to_the_end(self, explanation: Explanation) -> Explanation:
        """The same with what comes after the horizon, as far as it can be estimated.

        For what the simulator has explained it is rolled out, once for each action.
        """
        if self._simulator is None:
            return self.run.explainer.to_the_end(explanation)
        if explanation.legend.reward_bound is None:
            return explanation
        missing = [row for row, a in enumerate(explanation.actions) if _key(a) not in self._beyond]
        if missing:
            found = run_on.to_the_end(self._simulator, self._moment, explanation[np.array(missing)])
            for place, row in enumerate(missing):
                self._beyond[_key(explanation.actions[row])] = found[place : place + 1]
        return replace(explanation, beyond=all_beyond([self._beyond[_key(a)] for a in explanation.actions]))

    def follow(self, followed: Followed, draws: int = 0) -> Explanation:
        """[1]: what is expected if a behaviour is followed instead, by rollouts or by the table."""
        run = self.run
        first = followed.first_action(run.env, run.explainer.policy, self.state.observation)
        if self._simulator is not None:
            simulator = self._simulator.but(followed=followed)
            explanation = simulator.explain(self._moment, first[None], self._rollouts)
            if explanation.legend.reward_bound is None:
                return explanation
            return replace(explanation, beyond=run_on.to_the_end(simulator, self._moment, explanation))
        dynamics = run.dynamics()
        if dynamics is None:
            raise ValueError(
                f"{followed.name}: a behaviour is rolled out by the simulator or followed in a table, and "
                f"here is neither: {self.reason}"
            )
        return follow_in_table(run, dynamics, self.state.observation, first, followed, draws)

    def learned(self, actions: Array, draws: int = 0) -> Explanation:
        """[action]: as it was learned."""
        here = np.repeat(self.state.observation, len(actions), axis=0)
        explanation = self.run.explainer.explain(here, actions, draws=draws)
        return replace(explanation, action_names=self.run.env.numbered_action_names)

    def _ask_once(self, asking: Asking) -> None:
        """Find out whether the simulator can be asked here."""
        try:
            self._simulator = simulator_of(self.run, precision=asking.precision, progress=asking.progress)
            self._roll_out(self._valid_actions())
        except Exception as error:  # of an environment, in whatever way
            self.leave_out(" ".join(str(error).split()) or type(error).__name__)

    def _valid_actions(self) -> Array:
        """[action]: those that are rolled out together; none where there are too many."""
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
    run: SavedRun,
    dynamics: TabularDynamics,
    observation: Array,
    first: Array,
    followed: Followed,
    draws: int,
) -> Explanation:
    """[1]: what is expected by known or counted dynamics if a behaviour is followed from there on."""
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
    """Rolls out the policy of a run, to its horizon; settings as for `Simulator`."""
    horizon = run.explainer.predictor.horizon
    return Simulator(run.env, run.explainer.policy, run.outcomes(), horizon=horizon, **settings)


def without_mixing(sides: Sequence[Expectations]) -> None:
    """Do without the simulator where it answers only for some of those that are compared."""
    if not all(side.simulated for side in sides):
        reason = next(side.reason for side in sides if not side.simulated)
        for side in sides:
            side.leave_out(reason)


def _key(action: Array) -> bytes:
    return np.asarray(action).tobytes()


def reason_not_to_ask(run: SavedRun, state: NamedState, asking: Asking) -> str:
    """Why the simulator is not to be asked there; empty where it is."""
    policy = run.explainer.policy
    if asking.rollouts == 0:
        return "rollouts=0"
    if state.moment is None:
        return "it is asked about the moments of episodes, and an observation alone is none"
    if isinstance(policy, AbsentPolicy):
        return f"the agent could not be read back ({policy.reason})"
    if not run.env.playable:
        return f"{run.env.id} cannot be stepped"
    if asking.rollouts is None and np.isinf(_support(run, state)).all():
        return "the answer is exact"
    return ""


def _support(run: SavedRun, state: NamedState) -> Array:
    """[1]: what the learned answer stands on."""
    action = run.explainer.policy.action(state.observation)
    return run.explainer.predictor.support(state.observation, action)
