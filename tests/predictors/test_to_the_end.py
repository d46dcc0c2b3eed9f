"""What comes after the horizon, solved or rolled out, is what is left of the return of the whole episode."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.support import small_mdp
from tpd.core.beyond import Beyond, mean_of_both
from tpd.core.explanation import Explanation, together
from tpd.core.outcomes import OutcomeSet, component, event
from tpd.core.types import FloatArray
from tpd.envs import Environment
from tpd.policies.tabular import TabularPolicy
from tpd.predictors import run_on
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.simulation import Simulator
from tpd.predictors.whole_episode import Edges, Episodes
from tpd.sources.collection import play
from tpd.sources.moments import Moment
from tpd.store.explanations import load_explanation, save_explanation

HORIZON, WHOLE = 4, 400
STATES, ACTIONS = (each.ravel() for each in np.indices((small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS)))


def exact(horizon: int, policy: TabularPolicy | None = None) -> Explainer:
    policy, outcomes = policy or small_mdp.policy(), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=horizon)
    return Explainer(solution, policy, outcomes.legend)


def whole_returns(policy: TabularPolicy | None = None) -> FloatArray:
    """[pair]: of a horizon that nothing outlasts."""
    return np.asarray(exact(WHOLE, policy).explain(STATES, ACTIONS).expected_return[:, -1])


def with_rest(explanation: Explanation) -> FloatArray:
    assert explanation.beyond is not None
    return np.asarray(explanation.expected_return[:, -1] + explanation.beyond.mean)


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_what_is_solved_adds_up_to_the_return_of_the_whole_episode(discount: float) -> None:
    policy = replace_discount(small_mdp.policy(), discount)
    explainer = exact(HORIZON, policy)
    explained = explainer.to_the_end(explainer.explain(STATES, ACTIONS))
    np.testing.assert_allclose(with_rest(explained), whole_returns(policy), atol=1e-6)
    assert explained.beyond is not None
    assert explained.beyond.certain.all()
    assert explained.beyond.mean.min() > 0.1


def replace_discount(policy: TabularPolicy, discount: float) -> TabularPolicy:
    return TabularPolicy(policy.probabilities(np.arange(small_mdp.NUM_STATES)), discount)


def counted(steps: int) -> Explainer:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    learner = ReplayedFHTD(env, policy, outcomes, horizon=HORIZON)
    learner.update(play(env, policy, np.random.default_rng(0), episodes=steps).transitions)
    return Explainer(learner, policy, outcomes.legend)


def test_counts_are_solved_on_to_the_end_with_a_band() -> None:
    explainer = counted(3000)
    explained = explainer.to_the_end(explainer.explain(STATES, ACTIONS, draws=59))
    truth = whole_returns() - exact(HORIZON).explain(STATES, ACTIONS).expected_return[:, -1]
    assert explained.beyond is not None
    np.testing.assert_allclose(explained.beyond.mean, truth, atol=0.1)
    band = explained.beyond_band(0.9)
    assert band is not None
    assert ((band.low <= truth) & (truth <= band.high)).mean() > 0.7
    assert (band.width > 0).all()


def test_what_was_never_tried_leaves_the_rest_unknown() -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    learner = ReplayedFHTD(env, policy, outcomes, horizon=HORIZON)
    seen = play(env, policy, np.random.default_rng(0), episodes=500).transitions
    learner.update(seen[seen.observation != 3])
    explainer = Explainer(learner, policy, outcomes.legend)
    rest = explainer.to_the_end(explainer.explain(STATES, ACTIONS)).beyond
    assert rest is not None
    assert np.isnan(rest.mean).all()


def test_an_episode_that_need_not_end_has_no_rest_unless_it_is_discounted() -> None:
    """State 0 stays for ever, state 1 ends with the next step, both are worth 1 a step."""
    edges = Edges(
        row=np.array([0, 1]),
        arrival=np.array([0, 1]),
        reward=np.ones(2),
        goes_on=np.array([1.0, 0.0]),
        next_rows=np.array([[0], [1]]),
        probabilities=np.ones((2, 1)),
    )
    weight = np.ones(2)
    np.testing.assert_array_equal(Episodes(edges, 2, 1.0, 3).returns(weight), [np.nan, 0])
    np.testing.assert_allclose(Episodes(edges, 2, 0.5, 3).returns(weight), [0.25, 0])


def start() -> Moment:
    return Moment(0, np.array([]), np.asarray(small_mdp.environment().make().reset(seed=0)[0]))


def rolled(simulator: Simulator, moment: Moment, rollouts: int | None = None) -> Explanation:
    explanation = simulator.explain(moment, np.arange(2), rollouts)
    return replace(explanation, beyond=run_on.to_the_end(simulator, moment, explanation))


class LateNoise(gym.Env[int, int]):
    """Twelve steps with a reward; after the sixth a coin decides about it."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space: gym.spaces.Space[Any] = gym.spaces.Discrete(13)
        self.action_space: gym.spaces.Space[Any] = gym.spaces.Discrete(2)
        self.time = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return self.time, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        self.time += 1
        reward = 1.0 if self.time <= 6 else float(self.np_random.random() < 0.5)
        return self.time, reward, self.time == 12, False, {}


def test_what_is_random_only_after_the_horizon_is_rolled_out_more_than_once() -> None:
    env = Environment("LateNoise-v0")
    outcomes = OutcomeSet([component("reward", lambda t: t.reward, 0, 1)])
    simulator = Simulator(env, TabularPolicy(np.eye(2)[np.zeros(13, dtype=int)], 0.9), outcomes, horizon=3)
    explained = rolled(simulator, Moment(0, np.zeros(1, int), np.asarray(1)))
    assert explained.certain.all()
    assert explained.beyond is not None
    assert not explained.beyond.certain.any()
    assert len(explained.beyond.draws) >= run_on.FEWEST
    band = explained.beyond_band()
    assert band is not None
    assert (band.low < band.high).all()
    assert (explained[0] - explained[1]).whole().band is not None


gym.register(id="LateNoise-v0", entry_point="tests.predictors.test_to_the_end:LateNoise")


def test_rollouts_go_on_to_the_end() -> None:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    simulator = Simulator(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    moment = start()
    explained = rolled(simulator, moment, 300)
    beyond = explained.beyond
    assert beyond is not None
    assert run_on.FEWEST <= len(beyond.draws) <= run_on.MOST
    rest = exact(HORIZON).explain(STATES, ACTIONS).expected_return[:, -1]
    pair = int(moment.observation) * small_mdp.NUM_ACTIONS + np.arange(2)
    truth = (whole_returns() - rest)[pair]
    band = explained.beyond_band(0.999)
    assert band is not None
    assert ((band.low <= truth) & (truth <= band.high)).all()
    whole = (explained[0] - explained[1]).whole(0.999)
    assert whole.estimated.all()
    assert whole.band is not None
    difference = whole_returns()[pair[0]] - whole_returns()[pair[1]]
    assert whole.band.low[0] <= difference <= whole.band.high[0]
    plain = replace(explained, beyond=None)
    within = (plain[0] - plain[1]).whole()
    assert within.band is not None
    np.testing.assert_allclose(within.mean, (plain[0] - plain[1]).expected_return[:, -1], atol=1e-6)
    np.testing.assert_allclose(within.band.low, (plain[0] - plain[1]).return_band().low[:, -1], atol=1e-6)


def test_the_time_limit_ends_an_episode_and_steps_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """CartPole under a policy that never lets it fall soon is followed to its limit of 500 steps."""
    env = Environment("CartPole-v1")
    outcomes = OutcomeSet([event("time", lambda t: np.ones(len(t)), 1.0)], accounts_for_reward=True)
    simulator = Simulator(env, Balancing(), outcomes, horizon=10)
    observation = np.asarray(env.make().reset(seed=0)[0])
    limited = rolled(simulator, Moment(0, np.array([], dtype=np.int64), observation))
    assert limited.beyond is not None
    np.testing.assert_array_equal(limited.beyond.mean, 490)
    assert limited.beyond.certain.all()
    monkeypatch.setattr(run_on, "MOST_STEPS", 100)
    cut = rolled(simulator, Moment(0, np.array([], dtype=np.int64), observation))
    assert cut.beyond is not None
    assert np.isnan(cut.beyond.mean).all()
    np.testing.assert_array_equal(cut.beyond.unended, 110)


class Balancing:
    """Keeps a pole upright."""

    discount = 1.0

    def action(self, observations: FloatArray) -> FloatArray:
        return np.asarray(observations @ [0.2, 0.5, 3.0, 1.0] > 0, dtype=np.int64)

    def sample(self, observations: FloatArray, rng: np.random.Generator) -> FloatArray:
        return self.action(observations)

    def action_values(self, observations: FloatArray) -> None:
        return None


def test_the_band_of_a_sum_knows_that_its_parts_go_together() -> None:
    rng = np.random.default_rng(0)
    within = rng.normal(size=(400, 1))
    opposite = mean_of_both(within, -within[:100])
    same = mean_of_both(within, within[:100])
    alone = mean_of_both(within, rng.normal(size=(100, 1)))
    assert opposite.width[0] < alone.width[0] < same.width[0]


def test_it_is_kept_with_its_pairs(tmp_path: Path) -> None:
    explainer = counted(300)
    explained = explainer.to_the_end(explainer.explain(STATES, ACTIONS, draws=19))
    assert explained.beyond is not None
    both = together([explained[2], explained[0]])
    assert both.beyond is not None
    np.testing.assert_array_equal(both.beyond.mean, explained.beyond.mean[[2, 0]])
    np.testing.assert_array_equal(both.beyond.draws, explained.beyond.draws[:, [2, 0]])
    assert together([explained[2], replace(explained[0], beyond=None)]).beyond is None
    save_explanation(explained, tmp_path / "one.npz")
    loaded = load_explanation(tmp_path / "one.npz").beyond
    assert isinstance(loaded, Beyond)
    for name, values in vars(explained.beyond).items():
        np.testing.assert_array_equal(getattr(loaded, name), values)
