"""The radio network: seeds, channel and events are those of mobile-env."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from mobile_env.core.channels import OkumuraHata

from tpd.core.types import Array, Transitions
from tpd.envs.events import radio
from tpd.envs.events.radio import CELLS, HANDOVER_COST, USERS, radio_outcomes
from tpd.envs.radio import PlainDistance
from tpd.sources.random_sources import reseed


def serving(network: Any) -> list[int]:
    """The cell of each user by mobile-env itself, or -1."""
    cells = network.stations.values()
    return [
        next((bs.bs_id for bs in cells if user in network.connections[bs]), -1)
        for user in network.users.values()
    ]


@pytest.fixture(scope="module")
def played() -> tuple[Transitions, Array, Array]:
    """Random steps, and the cells of all users before and after each."""
    env, rng = gym.make("RadioNetwork-v0"), np.random.default_rng(0)
    columns, before, after = list[tuple[Any, ...]](), list[list[int]](), list[list[int]]()
    for seed in range(4):
        seen, _ = env.reset(seed=seed)
        over = False
        while not over:
            before.append(serving(env.unwrapped))
            action = np.where(rng.random(USERS) < 0.5, 0, rng.integers(0, CELLS + 1, USERS))
            stepped = env.step(action)
            columns.append((seen, action, *stepped[:4]))
            after.append(serving(env.unwrapped))
            seen, over = stepped[0], stepped[3]
    arrays: list[Any] = [np.array(column) for column in zip(*columns, strict=True)]
    return Transitions(*arrays), np.array(before), np.array(after)


def test_seeds_decide_where_users_are_and_go() -> None:
    def way(env: Any, seed: int | None) -> Array:
        first, _ = env.reset(seed=seed)
        return np.array([first, *(env.step(np.ones(USERS, dtype=int))[0] for _ in range(60))])

    one, other = gym.make("RadioNetwork-v0"), gym.make("RadioNetwork-v0")
    np.testing.assert_array_equal(way(one, 7), way(other, 7))
    assert not np.array_equal(way(one, 7), way(other, 8))
    assert not np.array_equal(way(one, None), way(one, None))


def test_a_fork_keeps_the_waypoints_that_nobody_observes() -> None:
    ways = []
    for seed in (1, 2):
        env = gym.make("RadioNetwork-v0")
        env.reset(seed=3)
        env.step(np.zeros(USERS, dtype=int))
        reseed(env, seed)
        ways.append(np.array([env.step(np.zeros(USERS, dtype=int))[0] for _ in range(98)]))
    assert np.array_equal(ways[0][:2], ways[1][:2])  # on their way
    assert not np.array_equal(ways[0], ways[1])  # new waypoints, once they have arrived


def test_rollouts_run_past_the_time_limit() -> None:
    env = gym.make("RadioNetwork-v0")
    env.reset(seed=0)
    ends = [env.step(np.zeros(USERS, dtype=int))[3] for _ in range(105)]
    assert ends.index(True) == 99


def test_the_channel_is_that_of_mobile_env() -> None:
    network: Any = gym.make("RadioNetwork-v0").unwrapped
    network.reset(seed=0)
    for user in network.users.values():
        for station in network.stations.values():
            expected = OkumuraHata().snr(station, user)
            assert PlainDistance().snr(station, user) == pytest.approx(expected, rel=1e-9)


def test_events_are_what_mobile_env_says(played: tuple[Transitions, Array, Array]) -> None:
    steps, before, after = played
    for user in range(USERS):
        lost = radio.loses_coverage(steps, user)
        assert (lost == ((before[:, user] >= 0) & (after[:, user] < 0))).all()
        handed = radio.handed_over(steps, user)
        assert handed.any()
        moved = (before[:, user] >= 0) & (after[:, user] >= 0) & (before[:, user] != after[:, user])
        assert (moved | ~handed).all()
    for cell in range(CELLS):
        assert (radio.overloaded(steps, cell) == ((after == cell).sum(axis=1) >= radio.CROWDED)).all()
    handovers = sum(radio.handed_over(steps, user).astype(int) for user in range(USERS))
    np.testing.assert_allclose(radio.handover_cost(steps), -HANDOVER_COST * handovers, atol=1e-6)


def test_ping_pong_is_a_return_within_a_few_steps(played: tuple[Transitions, Array, Array]) -> None:
    steps, before, after = played
    left = np.full((USERS, CELLS), -1000)
    found = []
    starts = np.append(True, steps.truncated[:-1])
    handed = np.array([radio.handed_over(steps, user) for user in range(USERS)])
    for step in range(len(steps)):
        if starts[step]:
            left[:] = -1000
        back = False
        for user in np.flatnonzero(handed[:, step]):
            back |= bool(step - left[user, after[step, user]] <= radio.MEMORY)
            left[user, before[step, user]] = step
        found.append(back)
    assert any(found)
    assert not all(found)
    assert radio.ping_pong(steps).tolist() == found


def test_outcomes_account_for_the_reward(played: tuple[Transitions, Array, Array]) -> None:
    outcomes = radio_outcomes()
    outcomes.observe(played[0])
    spoilt = Transitions(**{**vars(played[0]), "reward": played[0].reward + 0.5})
    with pytest.raises(ValueError, match="handover cost"):
        outcomes.observe(spoilt)
