"""Transitions collected around a policy, and whole episodes of it."""

import numpy as np
import pytest

from tests.support import small_mdp
from tpd.core.seeding import generator
from tpd.core.types import Policy, Transitions, concatenate
from tpd.envs import Environment
from tpd.policies.tabular import GreedyPolicy
from tpd.run.training import Training
from tpd.sources.collection import collect, play
from tpd.sources.exploration import Exploration, TabularExplorer, draw


def collected(env: Environment, policy: Policy, *, steps: int, epsilon: float, num_envs: int) -> Transitions:
    rng, exploration = generator(0, "test"), Exploration(epsilon)
    return concatenate(
        list(collect(env, policy, rng, steps=steps, exploration=exploration, num_envs=num_envs))
    )


def test_collection_is_exact_in_number_and_repeats_with_its_seed() -> None:
    env, policy = small_mdp.environment(), small_mdp.policy()

    def again() -> Transitions:
        batches = collect(
            env, policy, generator(3, "test"), steps=1234, exploration=Exploration(0.3), num_envs=7
        )
        return concatenate(list(batches))

    first, second = again(), again()
    assert len(first) == 1234
    np.testing.assert_array_equal(first.next_observation, second.next_observation)


def test_exploration_takes_other_actions_as_often_as_asked() -> None:
    env, policy = small_mdp.environment(), small_mdp.policy(stochastic=False)
    batch = collected(env, policy, steps=30_000, epsilon=0.3, num_envs=50)
    other = batch.action != policy.action(batch.observation)
    assert other.mean() == pytest.approx(0.3 * 2 / 3, abs=0.01)


def test_a_time_limit_is_no_termination_and_no_step_crosses_it() -> None:
    """After a truncation comes a reset, which is not a transition of the old episode."""
    env = Environment("SmallMDP-v0", max_episode_steps=3)
    model = env.model
    assert model is not None
    batch = collected(env, small_mdp.policy(), steps=5_000, epsilon=1.0, num_envs=5)
    assert (batch.truncated & ~batch.terminated).sum() > 500
    possible = model.next_state[batch.observation, batch.action] == batch.next_observation[:, None]
    assert possible.any(axis=1).all()


def test_gymnasiums_own_vector_envs_serve_too() -> None:
    """The same frequencies from SyncVectorEnv as from the table; its info is kept where asked for."""
    env = small_mdp.environment()
    model = env.model
    assert model is not None
    wanted = {"steps": 40_000, "exploration": Exploration(0.0), "num_envs": 20, "info_keys": ["parity"]}
    batch = concatenate(list(collect(env, small_mdp.policy(), generator(0, "test"), **wanted)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(batch.info["parity"], batch.next_observation % 2)
    pair = batch[(batch.observation == 0) & (batch.action == 0)]
    for b in range(3):
        hit = (pair.next_observation == model.next_state[0, 0, b]) & (
            pair.terminated == model.terminated[0, 0, b]
        )
        assert hit.mean() == pytest.approx(model.probability[0, 0, b], abs=0.04)


def test_episodes_are_whole_and_as_many_as_asked() -> None:
    episodes = play(small_mdp.environment(), small_mdp.policy(), generator(0, "test"), episodes=1003)
    assert len(episodes) == 1003
    for number in range(1003):
        steps = episodes[number]
        assert (steps.observation[1:] == steps.next_observation[:-1]).all()
        ends = steps.terminated | steps.truncated
        assert ends[-1]
        assert not ends[:-1].any()
    # the length of an episode is geometric, cut at 50; stopping early would favour short ones
    assert len(episodes.transitions) / 1003 == pytest.approx(1 / small_mdp.TERMINATION, rel=0.1)


def test_least_tried_actions_and_restarts_spread_the_visits() -> None:
    """At the same epsilon and number of steps, more of the valid pairs are tried ten times or more."""
    env = Environment("FuelTaxi-v0")
    valid = env.mask(np.arange(1050))
    policy = GreedyPolicy(np.zeros((1050, 7)), valid, 0.99)

    def well_tried(exploration: Exploration) -> int:
        batches = collect(
            env, policy, generator(0, "test"), steps=400_000, exploration=exploration, num_envs=500
        )
        code = np.concatenate([batch.observation * 7 + batch.action for batch in batches])
        return int((np.bincount(code, minlength=1050 * 7) >= 10).sum())

    plain = well_tried(Exploration(0.3))
    assert well_tried(Exploration(0.3, restarts=0.5)) > 1.1 * plain
    assert well_tried(Exploration(0.3, least_tried=True, restarts=0.5)) > 1.2 * plain


def test_the_explorer_keeps_to_valid_actions() -> None:
    env = Environment("FuelTaxi-v0")
    policy = GreedyPolicy(np.zeros((1050, 7)), env.mask(np.arange(1050)), 0.99)
    explorer = TabularExplorer(env, policy, Exploration(1.0, least_tried=True), generator(0, "test"))
    states = np.repeat(np.arange(1050), 20)
    for _ in range(3):
        actions = explorer(states).action
        assert env.mask(states)[np.arange(len(states)), actions].all()


def test_restarts_need_an_env_that_can_be_put_into_a_state() -> None:
    spread = Training(alongside=False, steps=1, epsilon=0.1, num_envs=1, least_tried=True, restarts=0.5)
    spread.check(small_mdp.environment(), [])
    with pytest.raises(ValueError, match="SmallMDP-v0 cannot be restarted"):
        spread.check(small_mdp.environment(), ["parity"])


def test_draw_follows_its_probabilities_and_never_takes_the_impossible() -> None:
    rng = np.random.default_rng(0)
    probabilities = np.tile([0.0, 0.7, 0.3, 0.0], (100_000, 1))
    counts = np.bincount(draw(probabilities, rng), minlength=4) / 100_000
    np.testing.assert_allclose(counts, [0, 0.7, 0.3, 0], atol=0.01)
    assert counts[0] == counts[3] == 0
