"""Answers by the simulator: common random numbers, a discarded pilot, and the same futures however forked."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.support import small_mdp
from tpd.core.outcomes import OutcomeSet, component, event, reward
from tpd.core.types import Array, FloatArray, IntArray
from tpd.envs import Environment
from tpd.predictors import simulation
from tpd.predictors.exact import ExactSolution
from tpd.predictors.simulation import PILOT, Simulator
from tpd.sources.moments import Moment
from tpd.sources.worlds import LocalWorlds

HORIZON = 6


def simulator(**settings: Any) -> Simulator:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    return Simulator(env, policy, outcomes, horizon=HORIZON, **settings)


def start() -> Moment:
    env = small_mdp.environment()
    return Moment(0, np.array([]), np.asarray(env.make().reset(seed=0)[0]))


def test_the_answer_is_the_exact_one_but_for_its_noise() -> None:
    rolled = simulator().explain(start(), np.arange(2), rollouts=800)
    exact = ExactSolution(
        small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=HORIZON
    ).predict(rolled.observations, rolled.actions)
    band = rolled.band(0.999)
    assert ((band.low <= exact[..., :-1]) & (exact[..., :-1] <= band.high)).all()
    np.testing.assert_allclose(rolled.running, 1 - exact[..., -1].cumsum(axis=1), atol=0.06)
    assert rolled.rollouts is not None
    np.testing.assert_allclose(rolled.expected, rolled.rollouts.mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(rolled.support, 800)
    assert rolled.obtained == "by 800 rollouts"


def test_the_same_question_has_the_same_answer() -> None:
    first, again = (simulator().explain(start(), np.arange(2), rollouts=50) for _ in range(2))
    other = simulator(seed=1).explain(start(), np.arange(2), rollouts=50)
    np.testing.assert_array_equal(first.rollouts, again.rollouts)
    assert (first.expected != other.expected).any()


def test_rollout_i_of_fact_and_foil_meets_the_same_chances() -> None:
    """Two actions that differ at once only differ in every pair of rollouts by that alone."""
    env = Environment("Gusts-v0")
    outcomes = OutcomeSet([component("place", lambda t: t.next_observation[:, 0], -99, 99)])
    policy = Coin()
    rolled = Simulator(env, policy, outcomes, horizon=8).explain(
        Moment(0, np.array([]), np.zeros(1)), np.array([0, 1]), rollouts=60
    )
    assert rolled.rollouts is not None
    fact, foil = rolled.rollouts[:, 0, :, 0], rolled.rollouts[:, 1, :, 0]
    np.testing.assert_allclose(fact + 2, foil, atol=1e-4)  # what the action itself adds
    assert len(np.unique(fact[:, -1].round(3))) > 50
    contrast = rolled[:1] - rolled[1:]
    assert contrast.band().width.max() < 1e-3 < rolled.band().width.min()
    alone = Simulator(env, policy, outcomes, horizon=8).explain(
        Moment(0, np.array([]), np.zeros(1)), np.array([1]), rollouts=60
    )
    np.testing.assert_array_equal(alone.rollouts, rolled.rollouts[:, 1:])  # whoever else is asked about


class Gusts(gym.Env[Any, Any]):
    """A place that moves by the wind, by twice the first action, and by later ones."""

    def __init__(self, render_mode: str | None = None, hidden: bool = False) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gym.spaces.Discrete(2)
        self.place, self.time, self.hidden = np.zeros(1), 0, hidden

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = np.zeros(1), 0
        return self.place.copy(), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.place += self.np_random.normal() + (0.1 if self.time else 2) * action
        self.time += 1
        return self.place.copy(), 0.0, False, False, {}


gym.register(id="Gusts-v0", entry_point="tests.predictors.test_simulation:Gusts")


class Coin:
    """Takes either action."""

    discount = 1.0

    def action(self, observations: Array) -> IntArray:
        return np.zeros(len(observations), dtype=np.int64)

    def probabilities(self, observations: Array) -> FloatArray:
        return np.full((len(observations), 2), 0.5)

    def sample(self, observations: Array, rng: np.random.Generator) -> IntArray:
        return rng.integers(2, size=len(observations))

    def action_values(self, observations: Array) -> None:
        return None


class BlindCoin:
    """The same, of which only samples are known."""

    discount = 1.0
    action, sample, action_values = Coin.action, Coin.sample, Coin.action_values


def test_a_policy_of_which_only_samples_are_known_draws_from_the_stream_of_each_rollout() -> None:
    outcomes = OutcomeSet([event("one", lambda t: t.action == 1)])
    told = Simulator(Environment("Gusts-v0"), BlindCoin(), outcomes, horizon=8)
    both = told.explain(Moment(0, np.array([]), np.zeros(1)), np.array([0, 1]), rollouts=40)
    assert both.rollouts is not None
    np.testing.assert_array_equal(both.rollouts[:, 0, 1:], both.rollouts[:, 1, 1:])
    assert both.rollouts[:, 0, 1:].mean() == pytest.approx(0.5, abs=0.1)


# how many


def test_the_pilot_decides_how_many_and_is_discarded(monkeypatch: pytest.MonkeyPatch) -> None:
    rolled = simulator().explain(start(), np.arange(2))
    assert rolled.rollouts is not None
    count = len(rolled.rollouts)
    assert PILOT < count <= 203
    again = simulator().explain(start(), np.arange(2), rollouts=count)
    np.testing.assert_array_equal(rolled.rollouts, again.rollouts)  # none of them is of the pilot
    asked = list[tuple[int, int]]()
    original = Simulator._roll_out

    def counted(self: Simulator, asking: Any, count: int, purpose: int, watched: bool = False) -> Any:
        asked.append((purpose, count))
        return original(self, asking, count, purpose, watched)

    monkeypatch.setattr(Simulator, "_roll_out", counted)
    simulator().explain(start(), np.arange(2))
    assert asked == [
        (simulation.SCOUTING, simulation.SCOUTS),
        (simulation.PILOTING, PILOT),
        (simulation.ANSWERING, count),
    ]


@pytest.mark.parametrize("precision", [0.15, 0.06, pytest.param(0.04, marks=pytest.mark.slow)])
def test_the_precision_that_was_asked_for_is_kept(precision: float) -> None:
    for seed in range(5):
        rolled = simulator(precision=precision, seed=seed).explain(start(), np.arange(2))
        assert (rolled.band().width[..., :2] / 2 <= precision + 1e-9).mean() > 0.98
    few = simulator(precision=precision, most=30).explain(start(), np.arange(2)).rollouts
    assert few is not None
    assert len(few) <= 30


def test_nonsense_is_refused() -> None:
    with pytest.raises(ValueError, match="precision"):
        simulator(precision=0)
    with pytest.raises(ValueError, match="rollouts must be 2 or more"):
        simulator().explain(start(), np.arange(2), rollouts=1)


# deterministic worlds


def test_a_deterministic_world_is_rolled_out_once_also_with_continuous_actions() -> None:
    class Swing:
        discount = 0.99

        def action(self, observations: Array) -> Array:
            return np.sign(observations[:, 2:3]).astype(np.float32)

        def sample(self, observations: Array, rng: np.random.Generator) -> Array:
            return self.action(observations)

        def action_values(self, observations: Array) -> None:
            return None

    class Noisy(Swing):
        def sample(self, observations: Array, rng: np.random.Generator) -> Array:
            return self.action(observations) * rng.random((len(observations), 1)).astype(np.float32)

    env, outcomes = Environment("Pendulum-v1"), OutcomeSet([reward(-20, 0)])
    seen = env.make().reset(seed=4)[0]
    moment, actions = Moment(4, np.array([]), seen), np.array([[0.5], [-1.0]], dtype=np.float32)
    rolled = Simulator(env, Swing(), outcomes, horizon=10).explain(moment, actions)
    assert rolled.rollouts is not None
    assert len(rolled.rollouts) == 1
    assert np.isinf(rolled.support).all()
    assert rolled.obtained == "by one rollout: policy and environment are deterministic here"
    noisy = Simulator(env, Noisy(), outcomes, horizon=10).explain(moment, actions)
    assert noisy.rollouts is not None
    assert len(noisy.rollouts) >= PILOT
    assert noisy.obtained == f"by {len(noisy.rollouts)} rollouts"


def test_errors_at_different_moments_are_independent() -> None:
    outcomes = OutcomeSet([component("place", lambda t: t.next_observation[:, 0], -99, 99)])
    env = Environment("Gusts-v0")
    told = Simulator(env, Always(), outcomes, horizon=3)
    moments = []
    for seed, steps in ((0, 5), (0, 6), (1, 5)):
        world = env.make()
        place = world.reset(seed=seed)[0]
        for _ in range(steps):
            place = world.step(0)[0]
        moments.append(Moment(seed, np.zeros(steps, int), place))
    blown = [told.explain(moment, np.arange(1), 50).rollouts for moment in [*moments, moments[0]]]
    gusts = [np.diff(each[:, 0, :, 0], axis=1).ravel() for each in blown if each is not None]
    np.testing.assert_array_equal(gusts[0], gusts[3])
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(gusts[one], gusts[other])[0, 1]) < 0.4


def test_hidden_randomness_is_refused() -> None:
    """Also where it comes so late in an episode that the proof of forks has not met it."""
    outcomes = OutcomeSet([component("place", lambda t: t.next_observation[:, 0], -99, 99)])
    told = Simulator(Environment("LateChance-v0"), Always(), outcomes, horizon=8)
    early = told.explain(Moment(0, np.zeros(20, int), np.zeros(1)), np.arange(2))
    assert early.obtained == "by one rollout: policy and environment are deterministic here"
    with pytest.raises(ValueError, match="LateChance-v0 cannot be forked: two rollouts from one moment with"):
        told.explain(Moment(0, np.zeros(54, int), np.zeros(1)), np.arange(2))


class LateChance(Gusts):
    """No wind, but after a while a generator that nobody can seed."""

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.time += 1
        if self.time > 55:
            self.place += np.random.default_rng().normal()
        return self.place.copy(), 0.0, False, False, {}


gym.register(id="LateChance-v0", entry_point="tests.predictors.test_simulation:LateChance")


class Always(Coin):
    """Takes the first action."""

    def probabilities(self, observations: Array) -> FloatArray:
        return np.tile([1.0, 0.0], (len(observations), 1))


# however they are forked


def test_futures_are_the_same_bit_for_bit_however_they_are_forked() -> None:
    env, outcomes = Environment("LunarLander-v3"), OutcomeSet([reward(-200, 200)])
    told = Simulator(env, Hover(), outcomes, horizon=12)
    live, actions = env.make(), [0, 2, 1, 2, 3] * 5
    here = live.reset(seed=5)[0]
    for action in actions:
        here = live.step(action)[0]
    moment = Moment(5, np.array(actions), here)
    found = []
    ways = {
        "in this process": lambda starts, watched: LocalWorlds(told.forks._fork_all(starts), watched),
        "by process": told.forks.in_processes,
        "in workers": lambda starts, watched: told.forks.in_workers(starts, 2, watched),
    }
    for way in ways.values():
        told.forks.worlds = lambda starts, steps, watched=False, way=way: way(starts, watched)  # type: ignore
        found.append(told.explain(moment, np.arange(4), rollouts=5).rollouts)
    assert found[0] is not None
    assert len(np.unique(found[0][:, 0, -1, 0])) == 5
    for other in found[1:]:
        np.testing.assert_array_equal(found[0], other)


class Hover(Coin):
    """Fires the main engine when it falls, else any."""

    def probabilities(self, observations: Array) -> FloatArray:
        falls = observations[:, 3:4] < -0.2
        return np.where(falls, [[0.1, 0.1, 0.7, 0.1]], [[0.4, 0.2, 0.2, 0.2]])
