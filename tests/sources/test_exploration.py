"""Exploration that spreads its visits, and tables that are refused before they are allocated."""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tests.support import Compose
from tests.support.commands import tpd_run
from tpd.core.seeding import generator
from tpd.core.types import BoolArray, FloatArray, IntArray, Transitions, concatenate
from tpd.envs import Environment
from tpd.policies.function import DiscreteFunctionPolicy
from tpd.policies.tabular import GreedyPolicy, TabularPolicy
from tpd.run.parts import ConfigError, build
from tpd.run.training import Training
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration, TabularExplorer

NUM_STATES, NUM_ACTIONS = 1050, 7


def taxi_explorer(exploration: Exploration, fuel_taxi: Environment) -> TabularExplorer:
    valid = fuel_taxi.mask(np.arange(NUM_STATES))
    policy = GreedyPolicy(np.zeros((NUM_STATES, NUM_ACTIONS)), valid, 0.99)
    return TabularExplorer(fuel_taxi, policy, exploration, generator(0, "test"))


def tries(counts: IntArray) -> Transitions:
    """Every pair tried as often as counts [state, action] say."""
    states, actions = (np.repeat(index.ravel(), counts.ravel()) for index in np.indices(counts.shape))
    nothing = np.zeros(len(states))
    return Transitions(states, actions, states, nothing, nothing.astype(bool), nothing.astype(bool))


def test_exploring_takes_the_valid_action_that_was_tried_least(fuel_taxi: Environment) -> None:
    explorer = taxi_explorer(Exploration(1.0, least_tried=True), fuel_taxi)
    counts = generator(1, "test").permuted(np.tile(np.arange(NUM_ACTIONS), (NUM_STATES, 1)), axis=1)
    explorer.remember(tries(counts))
    states = np.arange(NUM_STATES)
    valid: BoolArray = fuel_taxi.mask(states)
    expected = np.where(valid, counts, NUM_ACTIONS).argmin(axis=1)
    np.testing.assert_array_equal(explorer(states).action, expected)
    # once that one has been tried more than all others, it is the turn of the next
    explorer.remember(tries(NUM_ACTIONS * np.eye(NUM_ACTIONS, dtype=int)[expected]))
    counts[states, expected] += NUM_ACTIONS
    np.testing.assert_array_equal(
        explorer(states).action, np.where(valid, counts, 3 * NUM_ACTIONS).argmin(axis=1)
    )


def test_only_the_share_that_explores_takes_what_was_tried_least(fuel_taxi: Environment) -> None:
    explorer = taxi_explorer(Exploration(0.3, least_tried=True), fuel_taxi)
    counts = np.tile(np.arange(NUM_ACTIONS)[::-1], (NUM_STATES, 1))
    explorer.remember(tries(counts))
    states = np.repeat(np.arange(NUM_STATES), 100)
    valid = fuel_taxi.mask(states)
    first, last = valid.argmax(axis=1), NUM_ACTIONS - 1 - valid[:, ::-1].argmax(axis=1)
    choice = first != last
    drawn = explorer(states).action
    assert (drawn[choice] == last[choice]).mean() == pytest.approx(0.3, abs=0.01)
    assert ((drawn == first) | (drawn == last)).all()


def test_a_restart_is_at_the_least_visited_of_a_few_visited_states(fuel_taxi: Environment) -> None:
    explorer = taxi_explorer(Exploration(0.3, restarts=0.5), fuel_taxi)
    starts = np.full(20_000, NUM_STATES - 1)
    np.testing.assert_array_equal(explorer.restart(starts), starts)  # nothing was visited yet
    visited = np.arange(100)
    counts = np.zeros((NUM_STATES, NUM_ACTIONS), dtype=int)
    counts[visited, 0] = 1 + visited  # the number of a state is its rank
    explorer.remember(tries(counts))
    states = explorer.restart(starts)
    exchanged = states[states != NUM_STATES - 1]
    assert len(exchanged) / len(states) == pytest.approx(0.5, abs=0.02)
    assert exchanged.max() < 100
    # the least of eight ranks out of a hundred is 10.6 on average, a random one 49.5
    assert exchanged.mean() == pytest.approx(np.mean((1 - visited / 100) ** 8) * 100 - 1, abs=0.5)


def test_collecting_restarts_where_few_have_been() -> None:
    """Without restarts every episode of FrozenLake starts in its corner."""
    env = Environment("FrozenLake-v1", {"map_name": "8x8"})
    policy = TabularPolicy(np.full((64, 4), 0.25), 0.99)

    def starts(restarts: float) -> set[int]:
        batches = collect(
            env,
            policy,
            generator(0, "test"),
            steps=8_000,
            exploration=Exploration(0.1, restarts=restarts),
            num_envs=1,
        )
        steps = concatenate(list(batches))
        over = (steps.terminated | steps.truncated)[:-1]
        return set(steps.observation[1:][over].tolist())

    assert starts(0.0) == {0}
    assert len(starts(0.5)) > 10


def test_what_would_have_no_effect_is_refused() -> None:
    usual: dict[str, Any] = {"steps": 0, "epsilon": 0.3, "num_envs": 1, "least_tried": False, "restarts": 0.0}
    Training(alongside=True, **usual)
    for spread in ({"least_tried": True}, {"restarts": 0.5}):
        with pytest.raises(
            ValueError, match=r"least_tried and training\.restarts need training.steps of 1 or more"
        ):
            Training(alongside=True, **(usual | spread))
        Training(alongside=True, **(usual | spread | {"steps": 10}))
    with pytest.raises(ValueError, match="epsilon is 0"):
        Exploration(0.0, least_tried=True)


# Tables that are too large. Sizes are beyond what any machine can address, so that nothing is ever
# allocated, even without the refusal.


class Vast(gym.Env[Any, Any]):
    """More states than any table can hold."""

    def __init__(self, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Discrete(10**15)
        self.action_space = gym.spaces.Discrete(2)


gym.register(id="Vast-v0", entry_point="tests.sources.test_exploration:Vast")


def test_a_policy_with_a_table_that_is_too_large_is_refused(compose_config: Compose) -> None:
    overrides = ["env.id=tests.sources.test_exploration:Vast-v0", "outcomes=reward", "evaluation=none"]
    message = r"policy: .*1000000000000000 x 2 float64 needs 16000000.0 GB.*observes vectors"
    with pytest.raises(ConfigError, match=message):
        build(compose_config(*overrides))


def test_exploration_with_tables_that_are_too_large_is_refused() -> None:
    env, policy = Environment("Vast-v0"), TabularPolicy(np.full((1, 2), 0.5), 0.99)
    with pytest.raises(ValueError, match=r"exploration .* needs"):
        TabularExplorer(env, policy, Exploration(0.1), generator(0, "test"))
    training = Training(alongside=False, steps=1, epsilon=0.1, num_envs=1, least_tried=False, restarts=0.0)
    with pytest.raises(ValueError, match=r"exploration .* needs"):
        training.check(env, [])


def test_a_run_that_outgrows_the_memory_ends_with_one_line(tmp_path: Path) -> None:
    few = ["policy.steps=1000", "training.steps=1000", "evaluation=none", "tracking=none"]
    done = tpd_run(tmp_path, *few, "explainer.horizon=1e8", check=False)
    assert done.returncode != 0
    assert "use a shorter horizon" in done.stderr
    assert "Traceback" not in done.stderr


def test_sparse_exploration_departs_from_the_policy_every_so_many_steps_and_says_where() -> None:
    env = Environment("CartPole-v1")

    def act(observations: FloatArray) -> IntArray:
        return (observations[:, 2] > 0).astype(np.int64)

    policy = DiscreteFunctionPolicy(act, 0.99, env.action_space)
    exploration = Exploration(0.0, every=(5, 9))
    batches = collect(env, policy, generator(0, "test"), steps=4000, exploration=exploration, num_envs=4)
    seen = concatenate(list(batches))
    assert seen.own is not None
    assert seen.stream is not None
    np.testing.assert_array_equal(seen.own, seen.action == act(seen.observation))
    for stream in range(4):
        mine = seen[seen.stream == stream]
        assert mine.own is not None
        going_on = ~(mine.terminated | mine.truncated)[:-1]
        np.testing.assert_array_equal(mine.next_observation[:-1][going_on], mine.observation[1:][going_on])
        departures = np.flatnonzero(~mine.own)
        resets = np.cumsum(np.concatenate([[0], ~going_on]))  # a reset takes a step, and is no transition
        gaps = np.diff(departures + resets[departures])
        # a departure that falls on a reset is none
        assert gaps.min() >= 5
        assert np.median(gaps) <= 9


@pytest.mark.parametrize("wrong", [{"epsilon": 0.1}, {"every": (5,)}, {"every": (0, 3)}, {"every": (7, 3)}])
def test_sparse_exploration_refuses_settings_that_contradict_it(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="every"):
        Exploration(**{"epsilon": 0.0, "every": (10, 40), **wrong})
