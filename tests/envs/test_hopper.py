"""The events of MuJoCo's Hopper hold on what the simulator itself says."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hydra.utils import instantiate

from tests.support import Compose
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, FloatArray, Transitions
from tpd.envs.events import hopper

STEPS = 300


@pytest.fixture(scope="module")
def played() -> tuple[Transitions, FloatArray, list[dict[str, Any]]]:
    """Random steps; the height of the foot by MuJoCo after each, and info."""
    env, rng = gym.make("Hopper-v5"), np.random.default_rng(0)
    simulator: Any = env.unwrapped
    columns = list[tuple[Any, ...]]()
    heights, infos = list[float](), list[dict[str, Any]]()
    seen, _ = env.reset(seed=0)
    for _ in range(STEPS):
        action = rng.uniform(-1, 1, 3).astype(np.float32)
        after, reward, terminated, truncated, info = env.step(action)
        columns.append((seen, action, after, reward, terminated, truncated))
        heights.append(_lowest(simulator))
        infos.append(info)
        seen = env.reset()[0] if terminated or truncated else after
    arrays: list[Array] = [np.array(column) for column in zip(*columns, strict=True)]
    steps = Transitions(*arrays)  # type: ignore[arg-type]
    return steps, np.array(heights), infos


def _lowest(simulator: Any) -> float:
    """The lowest point of the foot's capsule."""
    geom = simulator.data.geom("foot_geom")
    radius, half = simulator.model.geom("foot_geom").size[:2]
    return float(geom.xpos[2] - abs(geom.xmat.reshape(3, 3)[2, 2]) * half - radius)


def test_the_height_of_the_foot_is_that_of_the_simulator(
    played: tuple[Transitions, Array, list[dict[str, Any]]],
) -> None:
    steps, heights, _ = played
    # MuJoCo places its bodies before the last part of a step
    np.testing.assert_allclose(hopper.foot_height(steps.next_observation), heights, atol=2e-4)
    assert 0 < hopper.in_flight(steps).mean() < 1
    turned = steps.next_observation.copy()
    turned[:, hopper.LEG] += 0.1
    assert np.abs(hopper.foot_height(turned) - heights).max() > 0.01


def test_terms_of_the_reward_are_those_of_info(
    played: tuple[Transitions, Array, list[dict[str, Any]]],
) -> None:
    steps, _, infos = played
    for function, key in [
        (hopper.forward, "reward_forward"),
        (hopper.alive, "reward_survive"),
        (hopper.effort, "reward_ctrl"),
    ]:
        np.testing.assert_allclose(function(steps), [info[key] for info in infos], atol=1e-6)


def test_events_follow_each_other(
    played: tuple[Transitions, Array, list[dict[str, Any]]], compose_config: Compose
) -> None:
    steps, _, _ = played
    made = instantiate(compose_config("env=hopper", "outcomes=hopper").outcomes, _convert_="all")
    assert isinstance(made, OutcomeSet)
    happened = made.observe(steps)[0]
    falls, lifts, lands = (happened[:, k].astype(bool) for k in range(3))
    assert falls.tolist() == steps.terminated.tolist()
    assert falls.any()
    assert lifts.any()
    assert not (lifts & lands).any()
    begins = np.append(True, steps.terminated[:-1])
    for episode in np.split(np.arange(STEPS), np.flatnonzero(begins)[1:]):
        changes = np.where(lifts[episode], 1, np.where(lands[episode], -1, 0))
        assert (np.diff(changes[changes != 0]) != 0).all()  # in turn
