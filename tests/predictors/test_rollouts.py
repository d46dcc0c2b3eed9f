"""Monte-Carlo truth: agrees with the exact solution, and forks what can be forked, by name."""

import random
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from scipy import stats

from tests.support import small_mdp
from tpd.core.intervals import clopper_pearson
from tpd.core.outcomes import OutcomeSet, component, event, reward
from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, IntArray, Policy, Transitions
from tpd.envs import Environment
from tpd.envs.events import fuel_taxi as events
from tpd.policies.tabular import GreedyPolicy
from tpd.predictors.cases import Cases, Truth
from tpd.predictors.exact import ExactSolution
from tpd.predictors.rollouts import MonteCarlo, SampledCases
from tpd.sources.forks import Forks, Start
from tpd.sources.moments import Moment
from tpd.sources.random_sources import reseed
from tpd.sources.worlds import Worlds

ROLLOUTS = 50


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def squared_deviation(estimated: Cases, true: FloatArray) -> float:
    """Mean of ((estimated - true) / standard error)² over what may happen or not; near 1 if it is right."""
    chance = (true > 1e-9) & (true < 1 - 1e-9)
    variance = true * (1 - true) / ROLLOUTS
    np.testing.assert_array_equal(estimated.expected[~chance], true[~chance].round())
    return float(((estimated.expected - true)[chance] ** 2 / variance[chance]).mean())


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("stochastic", "limit"),
    [
        (False, None),
        (True, 2),
        pytest.param(True, None, marks=pytest.mark.slow),
        pytest.param(False, 2, marks=pytest.mark.slow),
    ],
)
def test_agrees_with_the_exact_solution(stochastic: bool, limit: int | None) -> None:
    """Also where a time limit ends the episodes: it does not end what can be expected."""
    env, outcomes = Environment("SmallMDP-v0", max_episode_steps=limit), small_mdp.outcomes()
    policy = small_mdp.policy(stochastic)
    truth: Truth = MonteCarlo(env, policy, outcomes, horizon=8, moments=40, rollouts=ROLLOUTS)
    cases = truth.cases(40, rng())
    exact = ExactSolution(env, policy, outcomes, horizon=8).predict(cases.observations, cases.actions)
    assert 0.8 < squared_deviation(cases, exact) < 1.25
    assert cases.standard_error is not None
    spread = (cases.standard_error**2).mean() / (exact * (1 - exact) / ROLLOUTS).mean()
    assert spread == pytest.approx(1, abs=0.1)
    assert (cases.expected[..., 2].sum(axis=1) < 1 + 1e-9).all()  # a first occurrence happens once
    other = small_mdp.policy(not stochastic)
    wrong = ExactSolution(env, other, outcomes, horizon=8).predict(cases.observations, cases.actions)
    likely = (wrong > 0.05) & (wrong < 0.95)
    deviation = (cases.expected - wrong)[likely] ** 2 / (wrong * (1 - wrong) / ROLLOUTS)[likely]
    assert deviation.mean() > 2


def taxi_policy(env: Environment, epsilon: float) -> GreedyPolicy:
    model, discount = env.model, 0.95
    assert model is not None
    values = np.zeros(model.mask.shape)
    for _ in range(100):
        best = np.where(model.mask, values, -np.inf).max(axis=1)
        future = np.where(model.terminated, 0, best[model.next_state])
        values = (model.probability * (model.reward + discount * future)).sum(axis=2)
    return GreedyPolicy(values, model.mask, discount, epsilon)


@pytest.mark.parametrize("epsilon", [0.0, 0.3])
def test_agrees_with_the_exact_solution_of_the_taxi(fuel_taxi: Environment, epsilon: float) -> None:
    names = ("dropoff", "pickup", "refuel", "failure", "traffic", "move", "invalid")
    outcomes = OutcomeSet([event(name, getattr(events, name)) for name in names], partition=True)
    policy = taxi_policy(fuel_taxi, epsilon)
    truth = MonteCarlo(fuel_taxi, policy, outcomes, horizon=12, moments=30, rollouts=ROLLOUTS)
    cases = truth.cases(10, rng())
    exact = ExactSolution(fuel_taxi, policy, outcomes, horizon=12)
    assert 0.6 < squared_deviation(cases, exact.predict(cases.observations, cases.actions)) < 1.6
    own, foil = cases.actions[cases.own], cases.actions[~cases.own]
    assert fuel_taxi.mask(cases.observations)[np.arange(len(cases)), cases.actions].all()
    assert len(own) == 30
    assert len(foil) > 20  # at a few places there is but one valid action
    if epsilon == 0:
        np.testing.assert_array_equal(own, policy.action(cases.observations[cases.own]))
        assert (foil != policy.action(cases.observations[~cases.own])).all()


def test_the_same_generator_gives_the_same_cases_and_info_is_read() -> None:
    odd = OutcomeSet(
        [
            event("odd", small_mdp.odd),
            event("parity", lambda t: t.info["parity"] == 1, info_keys=["parity"]),
        ]
    )
    finished = list[int]()
    truth = MonteCarlo(
        small_mdp.environment(),
        small_mdp.policy(),
        odd,
        horizon=4,
        moments=5,
        rollouts=3,
        progress=finished.append,
    )
    first, again, other = (truth.cases(5, rng(seed)) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.expected, again.expected)
    np.testing.assert_array_equal(first.observations, again.observations)
    assert not np.array_equal(first.expected, other.expected)
    np.testing.assert_array_equal(first.expected[..., 0], first.expected[..., 1])
    assert sum(finished) == 15


def test_what_cannot_be_estimated_is_refused() -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    with pytest.raises(ValueError, match="rollouts must be 2 or more, got 1"):
        MonteCarlo(env, policy, outcomes, horizon=8, moments=9, rollouts=1)
    unknown = OutcomeSet([event("odd", small_mdp.odd, info_keys=["colour"])])
    with pytest.raises(ValueError, match=r"reads info\['colour'\], which SmallMDP-v0 must"):
        MonteCarlo(env, policy, unknown, horizon=8, moments=9, rollouts=2)


def test_every_step_of_the_episodes_is_equally_likely_to_be_chosen() -> None:
    """The position of a walk that always goes up by one is the time."""
    env = Environment("Drift-v0", {"source": "none"}, max_episode_steps=10)
    truth = MonteCarlo(env, Always(0), POSITION, horizon=1, moments=500, rollouts=2)
    time = [int(one.moment.observation[0]) for one in truth.choose(300, rng())]
    chosen = np.bincount(time, minlength=10)
    assert len(chosen) == 10
    assert ((chosen - 50) ** 2 / 50).sum() < 27  # chi-square with 9 degrees of freedom, 1 in 1000
    assert len(truth.choose(3, rng())) == 30  # all there are


class Deterministic:
    """Acts by a rule, which is all that is known of it."""

    discount = 0.99

    def action(self, observations: Array) -> Array:
        raise NotImplementedError

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        return self.action(observations)

    def action_values(self, observations: Array) -> None:
        return None


class Always(Deterministic):
    def __init__(self, choice: int) -> None:
        self.choice = choice

    def action(self, observations: Array) -> IntArray:
        return np.full(len(observations), self.choice)


class Balance(Deterministic):
    """Pushes the cart to the side to which the pole falls."""

    def action(self, observations: Array) -> IntArray:
        return np.asarray(observations[:, 2] + observations[:, 3] > 0, dtype=np.int64)


class OpenBalance(Balance):
    """The same, and says how sure it is."""

    def probabilities(self, observations: Array) -> FloatArray:
        return np.eye(2)[self.action(observations)]


def test_a_deterministic_world_has_no_standard_error_and_is_not_played_in_vain() -> None:
    outcomes = OutcomeSet([reward(0, 1), event("right", lambda t: t.action == 1)])
    env = Environment("CartPole-v1", max_episode_steps=8)
    found, asked = list[Cases](), list[int]()
    for policy in (Balance(), OpenBalance()):
        truth = MonteCarlo(env, policy, outcomes, horizon=20, moments=10, rollouts=12)
        assert truth.simulator.forks.by_copy
        counted = Counting(truth.simulator.forks)
        truth.simulator.forks = counted  # type: ignore[assignment]
        found.append(truth.cases(3, rng()))
        asked.append(counted.forks)
    np.testing.assert_array_equal(found[0].expected, found[1].expected)
    assert asked == [10 * 2 * 2] * 2  # whether or not the policy says how sure it is
    for cases in found:
        assert cases.standard_error is not None
        assert not cases.standard_error.any()
        # no time limit cuts the rollouts: as long as the pole stands, every step is worth 1
        np.testing.assert_array_equal(cases.expected[cases.own, :, 0], 1)


class Counting:
    """Counts the forks that are asked for."""

    def __init__(self, inner: Forks) -> None:
        self.inner = inner
        self.forks = 0

    def worlds(self, starts: list[Start], steps: int, watched: bool = False) -> Worlds:
        self.forks += sum(len(start.seeds) for start in starts)
        return self.inner.worlds(starts, steps, watched)


class Swing:
    """Pushes the pendulum about at random."""

    discount = 0.99

    def action(self, observations: Array) -> Array:
        return np.sign(observations[:, 2:3]).astype(np.float32)

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        return self.action(observations) * rng.random((len(observations), 1)).astype(np.float32)

    def action_values(self, observations: Array) -> None:
        return None


def test_continuous_actions() -> None:
    env, outcomes = Environment("Pendulum-v1"), OutcomeSet([reward(-20, 0)])
    truth = MonteCarlo(env, Swing(), outcomes, horizon=5, moments=10, rollouts=8)
    cases = truth.cases(2, rng())
    cosine, sine, speed = cases.observations.T
    assert cases.actions.shape == (20, 1)
    assert (np.abs(cases.actions) <= 2).all()
    assert (np.abs(cases.actions[~cases.own]) > 1).any()  # which the policy itself never does
    cost = np.arctan2(sine, cosine) ** 2 + 0.1 * speed**2 + 0.001 * cases.actions[:, 0] ** 2
    np.testing.assert_allclose(cases.expected[:, 0, 0], -cost, rtol=1e-4)
    assert cases.standard_error is not None
    assert not cases.standard_error[:, 0].any()
    assert (cases.standard_error[:, 2:, 0] > 0).all()


# forks


class Drift(gym.Env[Any, Any]):
    """A walk that goes up by one and by noise, from wherever its noise comes."""

    def __init__(self, source: str, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.source = source
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gym.spaces.Discrete(2)
        self.position = np.zeros(1)
        self.held: Any = random.Random() if source == "unseeded" else None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.position = np.zeros(1)
        match self.source:
            case "generator":
                self.held = np.random.default_rng(seed)
            case "random state":
                self.held = np.random.RandomState(seed)  # as older environments do
            case "python":
                self.held = random.Random(seed)
            case "list":
                self.held = [np.random.default_rng(seed)]
            case "part of a part":
                self.held = SimpleNamespace(part={"wind": SimpleNamespace(rng=np.random.default_rng(seed))})
            case "function":
                inner = np.random.default_rng(seed)
                self.held = lambda: inner.random()
            case "global, seeded by itself" if seed is not None:
                random.seed(seed)
            case "congruential" if seed is not None:
                self.held = seed
            case "uncopied":
                self.held = Uncopied()
        return self.position.copy(), {}

    def noise(self) -> float:
        match self.source:
            case "own":
                return self.np_random.random()
            case "generator" | "python" | "unseeded":
                return float(self.held.random())
            case "random state":
                return float(self.held.random_sample())
            case "list":
                return float(self.held[0].random())
            case "part of a part":
                return float(self.held.part["wind"].rng.random())
            case "function":
                return float(self.held())
            case "global":
                return float(np.random.random())  # noqa: NPY002  # what is to be refused
            case "global, rarely used":
                return float(random.random() < 1e-6)
            case "global, seeded by itself":
                return random.random()
            case "congruential":
                self.held = (self.held * 69069 + 1) % 2**32
                return float(self.held / 2**32)
            case "uncopied":
                self.held.steps += 1
                return self.np_random.random() * float(self.held.steps)
        return 0.0

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.position += 1 + self.noise()
        return self.position.copy(), 0.0, False, False, {}


class Uncopied:
    """A part that copies of the environment would share."""

    steps = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> "Uncopied":
        return self


gym.register(id="Drift-v0", entry_point="tests.predictors.test_rollouts:Drift", max_episode_steps=20)
POSITION = OutcomeSet([component("position", lambda t: t.next_observation[:, 0], 0, 1000)])


def futures(forks: Forks, moment: Moment, seeds: list[int], action: Any, steps: int) -> list[Array]:
    """What forks show in the end, stepped in turn."""
    envs = forks.fork(moment, seeds)
    for _ in range(steps):
        shown = [env.step(action)[0] for env in envs]
    return shown


@pytest.mark.parametrize(
    ("source", "by_copy"),
    [
        ("own", True),
        ("generator", True),
        ("random state", True),
        ("python", True),
        ("list", True),
        ("part of a part", True),
        ("function", False),  # copies share it
        ("uncopied", False),
    ],
)
def test_every_generator_that_is_held_is_seeded_anew(source: str, by_copy: bool) -> None:
    env = Environment("Drift-v0", {"source": source})
    forks = Forks(env)
    assert forks.by_copy == by_copy
    live = env.make()
    live.reset(seed=3)
    for _ in range(4):
        here, *_ = live.step(0)
    moment = Moment(3, np.zeros(4, int), here)
    first, second, again = futures(forks, moment, [1, 2, 1], action=0, steps=5)
    assert first != second
    assert first == again


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("global", "draws from the global generator"),
        ("global, rarely used", "draws from the global generator"),
        ("global, seeded by itself", "draws from the global generator"),
        ("unseeded", r"reset\(seed=...\) does not control"),
        ("congruential", "all its forks would have the same future"),
    ],
)
def test_randomness_out_of_reach_is_refused_by_name(source: str, reason: str) -> None:
    with pytest.raises(ValueError, match=f"Drift-v0 .*{reason}"):
        Forks(Environment("Drift-v0", {"source": source}))


class Strict(gym.Wrapper[Any, Any, Any, Any]):
    """Takes no step after the end of an episode, as some wrappers do."""

    ended = False

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        assert not self.ended, "the episode has ended"
        *rest, terminated, truncated, info = super().step(action)
        self.ended = terminated or truncated
        return rest[0], rest[1], terminated, truncated, info


def test_a_fork_has_no_time_limit() -> None:
    env = Environment("Drift-v0", {"source": "own"}, max_episode_steps=3, wrappers=[Strict])
    (fork,) = Forks(env).fork(Moment(0, np.array([]), np.zeros(1)), [1])
    assert not any(fork.step(0)[3] for _ in range(100))


def test_a_moment_that_is_not_met_again_is_refused() -> None:
    forks = Forks(Environment("Drift-v0", {"source": "own"}))
    with pytest.raises(ValueError, match=r"Drift-v0 cannot be forked: .* another observation after 2 steps"):
        forks.fork(Moment(0, np.zeros(2, int), np.array([7.0])), [1])


def test_the_lander_is_replayed() -> None:
    env = Environment("LunarLander-v3")
    forks = Forks(env)
    assert not forks.by_copy
    live = env.make()
    live.reset(seed=5)
    for _ in range(30):
        here, *_ = live.step(2)
    first, second, again = futures(forks, Moment(5, np.full(30, 2), here), [1, 2, 1], action=2, steps=10)
    assert not np.array_equal(first, second)
    np.testing.assert_array_equal(first, again)


class Body:
    """What a physics engine keeps: also what it does not show."""

    def __init__(self) -> None:
        self.place, self.warm_start = 0.0, 0.0


class Engine(gym.Env[Any, Any]):
    """Follows the protocol of MuJoCo's environments: a copy is a new one without the state."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (1,), np.float64)
        self.action_space = gym.spaces.Discrete(2)
        self.model, self.data = object(), Body()

    def __deepcopy__(self, memo: dict[int, Any]) -> "Engine":
        return Engine()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.data = Body()
        return np.array([self.data.place]), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.data.warm_start = 0.5 * self.data.warm_start + action
        self.data.place += self.data.warm_start + self.np_random.normal()
        return np.array([self.data.place]), 0.0, False, False, {}


gym.register(id="Engine-v0", entry_point="tests.predictors.test_rollouts:Engine", max_episode_steps=20)


@pytest.mark.parametrize("whole", [True, False])
def test_the_state_of_an_engine_is_taken_over_if_it_is_whole(
    whole: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_data(new: Body, model: object, old: Body) -> None:
        new.place = old.place
        if whole:
            new.warm_start = old.warm_start

    monkeypatch.setitem(sys.modules, "mujoco", SimpleNamespace(mj_copyData=copy_data))
    env = Environment("Engine-v0")
    forks = Forks(env)
    assert (forks._copy == forks._take_over_state) == forks.by_copy == whole
    live = env.make()
    live.reset(seed=3)
    for _ in range(6):
        here, *_ = live.step(1)
    moment = Moment(3, np.ones(6, int), here)
    first, second, again = futures(forks, moment, [1, 2, 1], action=1, steps=5)
    assert first != second
    assert first == again
    replayed = forks._lead_to(moment)
    reseed(replayed, 1)
    for _ in range(5):
        shown, *_ = replayed.step(1)
    assert first == shown


# recurrent policies, observations of several parts


class Fuse(gym.Env[Any, Any]):
    """Action 1 ends the episode with a fixed probability; otherwise nothing ever changes."""

    ENDING = 0.3

    def __init__(self, parts: bool = False, render_mode: str | None = None) -> None:
        self.render_mode = render_mode
        self.parts = parts
        box = gym.spaces.Box(0, 1, (1,), np.float32)
        self.observation_space = gym.spaces.Dict(a=box, last=gym.spaces.Discrete(2)) if parts else box
        self.action_space = gym.spaces.Discrete(2)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.show(0), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        ends = action == 1 and self.np_random.random() < self.ENDING
        return self.show(action), 0.0, ends, False, {}

    def show(self, last: int) -> Any:
        still = np.ones(1, dtype=np.float32)
        return {"a": still, "last": last} if self.parts else still


gym.register(id="Fuse-v0", entry_point="tests.predictors.test_rollouts:Fuse", max_episode_steps=12)


class EveryThird(Deterministic):
    """Counts in its hidden state what it has seen, and takes action 1 every third time."""

    version = 0

    def start(self, count: int) -> FloatArray:
        return np.zeros((count, 1), dtype=np.float32)

    def advance(self, observations: Array) -> FloatArray:
        return np.asarray((observations[:, -1:] + 1) % 3)

    def action(self, observations: Array) -> IntArray:
        return np.asarray(observations[:, -1] == 2, dtype=np.int64)


@pytest.mark.no_cover
def test_a_recurrent_policy_continues_from_its_hidden_state() -> None:
    outcomes = OutcomeSet([event("risk", lambda t: t.action == 1)])
    truth = MonteCarlo(
        Environment("Fuse-v0"), EveryThird(), outcomes, horizon=9, moments=40, rollouts=ROLLOUTS
    )
    cases = truth.cases(20, rng())
    assert set(cases.observations[:, 1].tolist()) == {0, 1, 2}
    exact, running = np.zeros((len(cases), 9, 2)), np.ones(len(cases))
    for h in range(9):
        risk = (cases.observations[:, 1] + h) % 3 == 2 if h else cases.actions == 1
        exact[:, h, 0], exact[:, h, 1] = running * risk, running * risk * Fuse.ENDING
        running *= 1 - risk * Fuse.ENDING
    assert 0.8 < squared_deviation(cases, exact) < 1.25


class Alternating(Deterministic):
    def action(self, observations: Array) -> IntArray:
        return np.asarray(1 - observations["last"])


def test_observations_of_several_parts() -> None:
    def taken(t: Transitions) -> BoolArray:
        return np.asarray(t.next_observation["last"] == 1)

    env = Environment("Fuse-v0", {"parts": True})
    policy: Policy = Alternating()
    assert not isinstance(policy, DiscretePolicy)
    truth = MonteCarlo(
        env, policy, OutcomeSet([event("taken", taken)]), horizon=2, moments=9, rollouts=ROLLOUTS
    )
    cases = truth.cases(5, rng())
    np.testing.assert_array_equal(cases.observations["a"], 1)
    now, then = cases.actions == 1, cases.actions == 0
    np.testing.assert_array_equal(cases.expected[:, 0, 0], now)
    np.testing.assert_array_equal(cases.expected[:, 1, 0], then)
    np.testing.assert_array_equal(cases.actions[cases.own], 1 - cases.observations["last"][cases.own])


# Bands


HORIZON = 6


def rolled_out(seed: int, outcomes: OutcomeSet | None = None) -> tuple[MonteCarlo, SampledCases]:
    truth = MonteCarlo(
        small_mdp.environment(),
        small_mdp.policy(),
        outcomes or small_mdp.outcomes(),
        horizon=HORIZON,
        moments=60,
        rollouts=40,
    )
    return truth, truth.cases(20, rng(seed))


@pytest.mark.no_cover
def test_bands_of_rollouts_hold_the_truth() -> None:
    truth, cases = rolled_out(seed=1)
    solution = ExactSolution(
        small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes(), horizon=HORIZON
    )
    true = solution.predict(cases.observations, cases.actions)
    by_then, happened = truth.happened_by(cases), np.cumsum(true, axis=1)
    chance = truth.once & (happened > 1e-9) & (happened < 1 - 1e-9)
    held = ((by_then.low <= happened) & (happened <= by_then.high))[chance].mean()
    assert 0.87 < held < 0.99
    assert np.isnan(by_then.low[..., ~truth.once]).all()
    np.testing.assert_array_equal(truth.once, [False, False, True, True])


def test_exact_limits_are_those_of_clopper_and_pearson() -> None:
    happened = np.arange(13.0)
    band = clopper_pearson(happened, np.full(13, 12.0), level=0.9)
    for count in range(13):
        interval = stats.binomtest(count, 12).proportion_ci(0.9, method="exact")
        assert (band.low[count], band.high[count]) == pytest.approx((interval.low, interval.high))


def test_what_is_certain_has_no_width() -> None:
    outcomes = OutcomeSet([reward(0, 1), event("right", lambda t: t.action == 1)])
    env = Environment("CartPole-v1", max_episode_steps=8)
    truth = MonteCarlo(env, OpenBalance(), outcomes, horizon=5, moments=4, rollouts=6)
    cases = truth.cases(1, rng())
    assert np.isinf(cases.rollouts).all()
    assert not truth.happened_by(cases).width[..., -1].any()
    drawn = replace(cases, rollouts=np.full(len(cases), 6.0))
    assert (truth.happened_by(drawn).width[..., -1] > 0.3).all()  # six rollouts that agree prove little


def test_moments_before_ends_are_chosen_apart() -> None:
    """From the last steps, as many as the horizon has, of episodes that terminate."""
    env, outcomes = Environment("Fuse-v0"), OutcomeSet([event("risk", lambda t: t.action == 1)])
    truth = MonteCarlo(env, EveryThird(), outcomes, horizon=2, moments=30, rollouts=2)
    chosen = truth.choose(40, rng(), before_ends=True)
    assert {int(one.moment.observation[-1]) for one in chosen} == {1, 2}  # it ends at the third of three
    assert {int(one.moment.observation[-1]) for one in truth.choose(40, rng())} == {0, 1, 2}
    cases = truth.cases(40, rng(), before_ends=True)
    assert cases.own.sum() == len(chosen)
    still = MonteCarlo(env, Always(0), outcomes, horizon=2, moments=30, rollouts=2)
    with pytest.raises(ValueError, match="none of 5 episodes of Fuse-v0 terminates"):
        still.cases(5, rng(), before_ends=True)
