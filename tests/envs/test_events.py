"""The outcomes of classic control, LunarLander and BipedalWalker hold on what those environments do."""

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.box2d import bipedal_walker as bipedal_walker_module
from gymnasium.envs.box2d.bipedal_walker import BipedalWalkerHeuristics
from gymnasium.envs.box2d.lunar_lander import heuristic
from hydra.utils import instantiate
from omegaconf import OmegaConf

from tests.support import Compose
from tpd.core.outcomes import OutcomeError, OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, Transitions
from tpd.envs import Environment
from tpd.envs.events import acrobot, bipedal_walker, cart_pole, lunar_lander, mountain_car, pendulum
from tpd.envs.events.default import default_outcomes, ended
from tpd.run.configs import CONFIG_FOLDER

Play = Callable[[Any, Array, np.random.Generator], Any]
"""environment, observation -> action"""


def at_random(env: Any, seen: Array, rng: np.random.Generator) -> Any:
    space = env.action_space
    return rng.integers(space.n) if hasattr(space, "n") else rng.uniform(space.low, space.high).astype("f4")


def always(action: int, env: Any, seen: Array, rng: np.random.Generator) -> int:
    return action


def balance(env: Any, seen: Array, rng: np.random.Generator) -> int:
    return int(seen[2] + 0.3 * seen[3] > 0)


def balance_and_run(env: Any, seen: Array, rng: np.random.Generator) -> int:
    """Holds the pole a little to one side, so that the cart must follow it off the track."""
    return int(seen[2] + 0.3 * seen[3] > 0.03)


def rock(env: Any, seen: Array, rng: np.random.Generator) -> int:
    return 2 if seen[1] >= 0 else 0


def pump(env: Any, seen: Array, rng: np.random.Generator) -> int:
    return 2 if seen[4] < 0 else 0


def swing_up(env: Any, seen: Array, rng: np.random.Generator) -> FloatArray:
    """Adds energy until the pendulum is almost upright, and holds it there."""
    cos, sin, velocity = seen
    push = -20 * sin - 4 * velocity if cos > 0.9 else 2 * np.sign(velocity or 1)
    return np.array([push], dtype=np.float32)  # beyond the limits at times, as agents do


def land(env: Any, seen: Array, rng: np.random.Generator) -> Any:
    return heuristic(env, seen)  # type: ignore[no-untyped-call]


def fly_off(env: Any, seen: Array, rng: np.random.Generator) -> int:
    return 2 if seen[1] < 1 else 1


def climb(env: Any, seen: Array, rng: np.random.Generator) -> int:
    """As high as it gets: there the observations are rounded most."""
    turn = 0.5 * (np.clip(0.5 * seen[0] + seen[2], -0.3, 0.3) - seen[4]) - seen[5]
    return 2 if abs(turn) < 0.05 else 1 if turn > 0 else 3


class Walk:
    """Gymnasium's own heuristic, anew for every episode: it falls often and finishes at times."""

    def __init__(self) -> None:
        self.hull: Any = None

    def __call__(self, env: Any, seen: Array, rng: np.random.Generator) -> Any:
        if env.unwrapped.hull is not self.hull:
            self.hull = env.unwrapped.hull
            self.heuristic = BipedalWalkerHeuristics()
        return self.heuristic.step_heuristic(seen).astype(np.float32)  # type: ignore[no-untyped-call]


# config -> how to play, for how many episodes
PLAYS: dict[str, list[tuple[Play, int]]] = {
    "cart_pole": [(at_random, 30), (balance, 3), (balance_and_run, 3)],
    "mountain_car": [(at_random, 5), (rock, 10)],
    "acrobot": [(at_random, 2), (pump, 5)],
    "pendulum": [(at_random, 5), (swing_up, 10)],
    "lunar_lander": [(at_random, 40), (land, 25), (fly_off, 10), (climb, 2)],
    "bipedal_walker": [(at_random, 5), (Walk(), 7)],
}
# how much more reward is noticed; the walker's position is not observed, only its velocity
NOTICED = {"bipedal_walker": 2 * bipedal_walker.SLACK}


class Played(NamedTuple):
    """What was seen, and the environment's state behind it after each step."""

    transitions: Transitions
    facts: dict[str, Array]
    """[batch, ...] each"""
    starts: BoolArray
    """[batch]: the first step of an episode"""


def config(group: str, name: str) -> Any:
    return instantiate(OmegaConf.load(CONFIG_FOLDER / group / f"{name}.yaml"), _convert_="all")


def inside(env: Any) -> dict[str, Any]:
    """The state that the observation is made of."""
    if hasattr(env, "hull"):
        contact = [env.legs[knee].ground_contact for knee in (1, 3)]
        return {"x": env.hull.position.x, "touched": env.game_over, "contact": contact}
    if not hasattr(env, "lander"):
        return {"state": np.array(env.state, dtype=np.float64)}
    return {
        "game_over": env.game_over,
        "awake": env.lander.awake,
        "x": (env.lander.position.x - 10) / 10,
        "offset": [leg.position.x - env.lander.position.x for leg in env.legs],
        "contact": [leg.ground_contact for leg in env.legs],
        "push": env.lander.linearVelocity.x,
        "angle": env.lander.angle,
    }


def record(env: gym.Env[Any, Any], plays: list[tuple[Play, int]]) -> Played:
    rng = np.random.default_rng(0)
    steps: list[tuple[Any, ...]] = []
    facts: list[dict[str, Any]] = []
    starts: list[int] = []
    for play, episodes in plays:
        for seed in range(episodes):
            seen, _ = env.reset(seed=seed)
            over = False
            starts.append(len(steps))
            while not over:
                action = play(env, seen, rng)
                after, reward, terminated, truncated, _ = env.step(action)
                steps.append((seen, action, after, reward, terminated, truncated))
                facts.append(inside(env.unwrapped))
                seen, over = after, terminated or truncated
    columns: Any = [np.array(column) for column in zip(*steps, strict=True)]
    named = {key: np.array([fact[key] for fact in facts]) for key in facts[0]}
    return Played(Transitions(*columns), named, np.isin(np.arange(len(steps)), starts))


@functools.cache
def played(name: str) -> Played:
    return record(config("env", name).make(), PLAYS[name])


@pytest.mark.parametrize("name", PLAYS)
def test_outcomes_hold_on_every_step_and_none_is_dead(name: str, compose_config: Compose) -> None:
    cfg = compose_config(f"env={name}")
    outcomes: OutcomeSet = instantiate(cfg.outcomes, _convert_="all")
    seen = outcomes.observe(played(name).transitions).outcome
    for values, outcome in zip(seen.T, outcomes.outcomes, strict=False):
        if outcome.is_event:
            assert 0 < values.sum() < len(values), outcome.name
        else:
            assert values.any(), outcome.name


@pytest.mark.parametrize("name", PLAYS)
def test_the_reward_is_accounted_for_from_the_first_step_to_the_last(name: str) -> None:
    steps, _, starts = played(name)
    outcomes = config("outcomes", name)
    assert outcomes.legend.reward_bound is not None
    ends = steps.terminated if steps.terminated.any() else steps.truncated
    for some in (starts, ends):
        outcomes.observe(steps[some])
        more = replace(steps[some], reward=steps[some].reward + NOTICED.get(name, 0.01))
        with pytest.raises(OutcomeError, match="do not account for the reward"):
            outcomes.observe(more)


@pytest.mark.parametrize("name", PLAYS)
def test_names_are_short_and_fit_the_tracking(name: str) -> None:
    for outcome in config("outcomes", name).outcomes:
        assert outcome.name.replace(" ", "").isalpha()
        assert len(outcome.name) <= len("first tip above pivot")


@pytest.mark.parametrize("name", PLAYS)
def test_events_of_actions_are_named_as_the_environment_names_them(name: str) -> None:
    env = config("env", name)
    steps = played(name).transitions
    if env.discrete:
        for outcome in config("outcomes", name).outcomes:
            if outcome.name in env.action_names:
                assert (outcome.values(steps) == (steps.action == env.action(outcome.name))).all()


def test_the_cart_or_the_pole_ends_the_episode() -> None:
    steps, facts, _ = played("cart_pole")
    position, _, angle, _ = facts["state"].T
    assert (cart_pole.left_the_track(steps) == (np.abs(position) > 2.4)).all()
    fallen = np.abs(angle) > np.radians(12)
    assert (cart_pole.fell(steps) == (fallen & (np.abs(position) <= 2.4))).all()
    assert (cart_pole.leans_right(steps) == (angle > np.radians(1))).all()
    assert (cart_pole.leans_left(steps) == (angle < -np.radians(1))).all()
    assert (cart_pole.right_of_centre(steps) == (position > 0)).all()


def test_a_push_to_the_right_lets_the_pole_lean_to_the_left() -> None:
    env = config("env", "cart_pole").make()
    right = record(env, [(functools.partial(always, 1), 3)]).transitions
    assert cart_pole.leans_left(right)[-1]
    assert cart_pole.right_of_centre(right)[-1]


def test_the_hills_are_higher_than_the_bottom_of_the_valley() -> None:
    steps, facts, _ = played("mountain_car")
    position, velocity = facts["state"].T
    height = np.sin(3 * position)  # -1 at the bottom
    for hill in (mountain_car.on_left_hill(steps), mountain_car.on_right_hill(steps)):
        assert height[hill].min() > -0.7
    assert (position[mountain_car.on_left_hill(steps)] < -0.8).all()
    assert (position[mountain_car.on_right_hill(steps)] > -0.25).all()
    assert (ended(steps) == (position >= 0.5)).all()
    assert (mountain_car.moved_right(steps) == (velocity > 0)).all()


def test_between_the_hills_lies_the_bottom() -> None:
    steps = played("mountain_car").transitions
    side = mountain_car.on_right_hill(steps) * 1 - mountain_car.on_left_hill(steps)
    on_a_hill = np.flatnonzero(side)
    crossings = np.cumsum(mountain_car.passed_the_bottom(steps))[on_a_hill]
    episode = np.cumsum(played("mountain_car").starts)[on_a_hill]
    same_episode = np.diff(episode) == 0
    odd = np.diff(crossings) % 2 == 1
    assert (odd == (np.diff(side[on_a_hill]) != 0))[same_episode].all()


def test_the_tip_of_the_acrobot_is_where_its_links_put_it() -> None:
    steps, facts, starts = played("acrobot")
    upper, lower = facts["state"][:, 0], facts["state"][:, 0] + facts["state"][:, 1]
    height, offset = -np.cos(upper) - np.cos(lower), np.sin(upper) + np.sin(lower)
    clear = np.minimum(np.abs(height), np.abs(offset)) > 1e-5  # of the rounding of observations
    assert (acrobot.tip_above_pivot(steps) == (height > 0))[clear].all()
    assert (acrobot.tip_to_the_right(steps) == (offset > 0))[clear].all()
    rises = np.diff(height)
    sure = ~starts[1:] & (np.abs(rises) > 1e-5)
    assert (acrobot.tip_rose(steps)[1:] == (rises > 0))[sure].all()
    assert (ended(steps) == (height > 1)).all()
    assert (acrobot.folded(steps) == (np.cos(lower - upper) < 0))[clear].all()


def test_the_torque_of_the_acrobot_turns_the_lower_link() -> None:
    env = config("env", "acrobot").make()
    turned = []
    for action in range(3):
        env.reset(seed=0)
        env.unwrapped.state = np.zeros(4)
        turned.append(env.step(action)[0][acrobot.SIN_LOWER])
    clockwise, none, counterclockwise = turned
    assert clockwise < none < counterclockwise


def test_the_pendulum_rises_when_it_gets_higher() -> None:
    steps, facts, starts = played("pendulum")
    angle, velocity = facts["state"].T
    off = np.abs(np.remainder(angle + np.pi, 2 * np.pi) - np.pi)
    assert (pendulum.upright(steps) == (off < np.radians(12))).all()
    assert (pendulum.upper_half(steps) == (off < np.pi / 2)).all()
    assert (pendulum.fast(steps) == (np.abs(velocity) > 4)).all()
    comes_nearer = -np.diff(off)
    passes_top_or_bottom = np.abs(velocity[1:]) * 0.05 > np.minimum(off[1:], np.pi - off[1:])
    sure = ~starts[1:] & ~passes_top_or_bottom
    assert (comes_nearer[pendulum.rose(steps)[1:] & sure] > 0).all()
    assert (comes_nearer[pendulum.fell(steps)[1:] & sure] < 0).all()
    still = ~pendulum.rose(steps) & ~pendulum.fell(steps)
    assert (np.abs(velocity[still]) <= 0.1 + 1e-6).all()


def test_full_torque_is_what_the_environment_can_give() -> None:
    steps = played("pendulum").transitions
    assert np.abs(steps.action).max() > 2 == np.abs(pendulum.torque(steps)).max()
    assert (np.abs(steps.action[pendulum.full_torque(steps)]) > 1.9).all()


def test_the_lander_lands_crashes_or_flies_off() -> None:
    steps, facts, _ = played("lunar_lander")
    off, crash, rest = np.abs(facts["x"]) >= 1, facts["game_over"], ~facts["awake"]
    assert (lunar_lander.landed(steps) == rest).all()
    assert (lunar_lander.left_the_view(steps) == (off & ~rest)).all()
    assert (lunar_lander.crashed(steps) == (crash & ~off & ~rest)).all()


def test_the_legs_of_the_lander_are_left_and_right_as_in_the_picture() -> None:
    steps, facts, _ = played("lunar_lander")
    level = np.abs(facts["angle"]) < 1
    first_is_right = (facts["offset"][:, 0] > facts["offset"][:, 1])[level]
    assert first_is_right.all()
    assert (lunar_lander.right_leg_down(steps) == facts["contact"][:, 0]).all()
    assert (lunar_lander.left_leg_down(steps) == facts["contact"][:, 1]).all()


def test_the_lander_is_pushed_where_the_action_says() -> None:
    env = config("env", "lunar_lander")
    for name, sign in (("push left", -1), ("push right", 1)):
        action = env.action(name)
        push = record(env.make(), [(functools.partial(always, action), 1)]).facts["push"]
        assert sign * (push[10] - push[0]) > 0


def test_a_continuous_lander_has_the_same_outcomes() -> None:
    env = Environment("LunarLanderContinuous-v3")
    outcomes = config("outcomes", "lunar_lander")
    steps = record(env.make(), [(at_random, 10), (land, 5)]).transitions
    seen = outcomes.observe(steps).outcome
    fired = seen[:, outcomes.legend.names.index("main engine")] > 0
    assert (fired == (steps.action[:, 0] > 0)).all()


def test_what_rounding_hides_is_little() -> None:
    steps = played("lunar_lander").transitions
    flying = steps[~steps.terminated]
    nearer = np.hypot(*flying.observation[:, :2].T) - np.hypot(*flying.next_observation[:, :2].T)
    assert np.abs(lunar_lander.distance(flying) - 100 * nearer).max() < 0.01


def test_the_walker_falls_or_finishes() -> None:
    steps, facts, _ = played("bipedal_walker")
    end = (bipedal_walker_module.TERRAIN_LENGTH - bipedal_walker_module.TERRAIN_GRASS) * (
        bipedal_walker_module.TERRAIN_STEP
    )
    assert (bipedal_walker.fell(steps) == facts["touched"] | (facts["x"] < 0)).all()
    assert (bipedal_walker.finished(steps) == (facts["x"] > end)).all()


def test_the_walker_stumbles_before_it_falls_and_not_when_it_falls() -> None:
    steps = played("bipedal_walker").transitions
    fell, stumbled = bipedal_walker.fell(steps), bipedal_walker.stumbled(steps)
    assert not (fell & stumbled).any()
    assert stumbled[np.flatnonzero(fell) - 1].all()


def test_the_feet_of_the_walker_touch_the_ground() -> None:
    steps, facts, _ = played("bipedal_walker")
    assert (bipedal_walker.left_foot_down(steps) == facts["contact"][:, 0]).all()
    assert (bipedal_walker.right_foot_down(steps) == facts["contact"][:, 1]).all()


def test_the_walker_gets_as_far_as_its_reward_says() -> None:
    steps, facts, starts = played("bipedal_walker")
    way = np.diff(facts["x"]) * bipedal_walker.REWARD_PER_METRE
    walking = ~starts[1:] & ~bipedal_walker.fell(steps)[1:]
    assert np.abs(bipedal_walker.forward(steps)[1:] - way)[walking].max() < 1e-4


class Levers(gym.Env[Array, Array]):
    """Two levers, one with three positions and one that cannot be moved."""

    observation_space = gym.spaces.Box(-1, 1, (1,))
    action_space = gym.spaces.MultiDiscrete([3, 1])

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode


def test_by_default_exactly_one_numbered_action_is_taken() -> None:
    outcomes = config("outcomes", "default")(config("env", "cart_pole"))
    assert outcomes.legend.names == (*outcomes.legend.partition, "reward")
    assert outcomes.legend.partition == ("action: push left", "action: push right")
    steps = played("cart_pole").transitions
    left, right, reward, ended = outcomes.observe(steps).outcome.T
    assert (right == steps.action).all()
    assert (left == 1 - steps.action).all()
    assert (reward == steps.reward).all()
    assert (ended == steps.terminated).all()


def test_by_default_actions_without_names_are_numbered() -> None:
    names = default_outcomes(Environment("MountainCar-v0")).legend.names
    assert names == ("action: 0", "action: 1", "action: 2", "reward")


def test_by_default_each_number_of_a_continuous_action_is_an_outcome() -> None:
    steps = record(Environment("Pendulum-v1").make(), [(at_random, 1)]).transitions
    outcomes = default_outcomes(config("env", "pendulum"), reward_low=-17, reward_high=0)
    assert outcomes.legend.names == ("action: torque", "reward", "end")
    assert outcomes.legend.reward_bound == 17
    assert (outcomes.observe(steps).outcome[:, 0] == steps.action[:, 0]).all()


def test_by_default_each_choice_of_a_part_is_an_event_if_there_is_a_choice() -> None:
    gym.register("Levers-v0", f"{__name__}:Levers")
    names = [outcome.name for outcome in default_outcomes(Environment("Levers-v0")).outcomes]
    assert names == ["action: part 0 0", "action: part 0 1", "action: part 0 2", "reward", "end"]
    gym.registry.pop("Levers-v0")


def test_as_many_names_as_numbers_in_an_action() -> None:
    with pytest.raises(ValueError, match="an action of Pendulum-v1 has 1 numbers but 2 names"):
        default_outcomes(Environment("Pendulum-v1", action_names=["torque", "brake"]))
