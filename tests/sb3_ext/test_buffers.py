"""What a replay buffer holds, against what was witnessed while it was filled."""

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN, SAC, TD3
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_ext.buffers import load_replay_buffer, replay_buffer_batches
from sb3_ext.callback import TransitionCallback
from tests.support import Compose
from tests.support.learning import train
from tests.support.sb3_walks import NOISE, OFF_POLICY, Walks, build
from tpd.core.types import Array, Transitions, concatenate
from tpd.run.parts import ConfigError
from tpd.run.parts import build as parts_of


def from_replay_buffer(buffer: Any, **settings: Any) -> Transitions:
    """All steps of a buffer in one batch."""
    (whole,) = replay_buffer_batches(buffer, buffer.buffer_size * buffer.n_envs, **settings)
    return whole


def filled(model: OffPolicyAlgorithm, steps: int = 240) -> ReplayBuffer:
    model.learn(steps)
    assert model.replay_buffer is not None
    return model.replay_buffer


def column(seen: Sequence[tuple[Any, ...]], number: int) -> Array:
    """[step, ...]: one of the things that a witness wrote down at each step."""
    return np.array([step[number] for step in seen], dtype=np.float32)


def walked(**settings: Any) -> tuple[Walks, ReplayBuffer]:
    """A buffer with 80 steps of each of three walks."""
    walks = Walks()
    return walks, filled(build(DQN, walks.env, OFF_POLICY | settings))


def not_telling_time_limits() -> tuple[Walks, ReplayBuffer]:
    return walked(replay_buffer_kwargs={"handle_timeout_termination": False})


@pytest.mark.parametrize(
    ("algorithm", "settings", "continuous"),
    [
        (DQN, {}, False),
        (SAC, {}, True),
        (TD3, {"action_noise": NOISE}, True),
        (DQN, {"n_steps": 3}, False),
    ],
)
def test_a_buffer_holds_the_true_steps(
    algorithm: type[OffPolicyAlgorithm], settings: dict[str, Any], continuous: bool
) -> None:
    walks = Walks(continuous=continuous)
    walks.compare(from_replay_buffer(filled(build(algorithm, walks.env, OFF_POLICY | settings))))


def test_a_full_buffer_holds_the_latest_steps_in_the_order_of_time() -> None:
    walks, buffer = walked(buffer_size=150)
    assert buffer.full
    assert buffer.pos > 0
    walks.compare(from_replay_buffer(buffer), leave_out=30)


def test_original_values_are_held_under_normalisation() -> None:
    """Except the last observations of episodes, which SB3 itself only has clipped."""
    walks = Walks()
    held = from_replay_buffer(filled(build(DQN, VecNormalize(walks.env), OFF_POLICY)))
    seen = walks.witnesses[0].seen
    np.testing.assert_array_equal(held.observation[::3], column(seen, 0))
    np.testing.assert_array_equal(held.reward[::3], column(seen, 3))
    assert held.next_observation[held.terminated][:, 2].min() < 50


def test_dicts_and_images_are_turned_back_to_the_layout_of_the_env() -> None:
    walks = Walks(form="dict")
    buffer = filled(build(DQN, walks.env, OFF_POLICY | {"learning_starts": 1000}, "MultiInput"))
    with pytest.raises(ValueError, match=r"images \(.*2, 36, 38.*own observation_space"):
        from_replay_buffer(buffer)
    own = walks.witnesses[0].observation_space
    held = from_replay_buffer(buffer, observation_space=own)
    walks.compare(held)
    assert held.observation["count"].shape == (240,)
    assert isinstance(own, gym.spaces.Dict)
    other = gym.spaces.Dict({**own.spaces, "image": gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)})
    with pytest.raises(ValueError, match=r"the env has \(8, 8, 3\)"):
        from_replay_buffer(buffer, observation_space=other)


def test_pendulum_receives_what_the_buffer_gives_back() -> None:
    """Actions in [-2, 2], stored in [-1, 1]; every episode ends by its time limit alone."""
    env = DummyVecEnv([lambda: gym.make("Pendulum-v1", max_episode_steps=50)])
    model = build(SAC, env, OFF_POLICY)
    shown: list[Transitions] = []
    model.learn(220, callback=TransitionCallback([shown.append]))
    held, true = from_replay_buffer(model.replay_buffer), concatenate(shown)
    np.testing.assert_allclose(held.action, true.action, rtol=1e-6)
    assert np.abs(held.action).max() > 1.5
    assert held.action.shape == (220, 1)
    np.testing.assert_array_equal(np.flatnonzero(held.truncated), [49, 99, 149, 199])
    assert not held.terminated.any()
    np.testing.assert_array_equal(held.next_observation, true.next_observation)


def test_batches_are_parts_of_the_whole() -> None:
    _, buffer = walked()
    batches = list(replay_buffer_batches(buffer, 100))
    assert [len(batch) for batch in batches] == [99, 99, 42]
    np.testing.assert_array_equal(
        concatenate(batches).next_observation, from_replay_buffer(buffer).next_observation
    )


def test_what_is_given_back_is_no_view_of_the_buffer() -> None:
    walks, buffer = walked()
    held = from_replay_buffer(buffer)
    buffer.observations[:], buffer.rewards[:], buffer.actions[:], buffer.dones[:] = -1, -1, 0, 1
    walks.compare(held)


def test_without_time_limits_told_apart_an_ending_is_refused() -> None:
    walks, buffer = not_telling_time_limits()
    with pytest.raises(ValueError, match=r"handle_timeout_termination=False.*time_limits=False"):
        from_replay_buffer(buffer)
    held = from_replay_buffer(buffer, time_limits=False)
    ended = [terminated or truncated for *_, terminated, truncated, _ in walks.witnesses[0].seen]
    np.testing.assert_array_equal(held.terminated[::3], ended)


def test_next_observations_that_share_the_memory_of_the_following_ones() -> None:
    """The following entry is the next observation, until an episode ends: then it is lost."""
    saving: dict[str, Any] = {
        "optimize_memory_usage": True,
        "buffer_size": 30,
        "replay_buffer_kwargs": {"handle_timeout_termination": False},
    }
    walks = Walks(num_envs=1)
    buffer = filled(build(DQN, walks.env, OFF_POLICY | saving), steps=47)
    with pytest.raises(ValueError, match="optimize_memory_usage=True does not store the last observation"):
        from_replay_buffer(buffer, time_limits=False)
    buffer.dones[:] = 0  # as if it had been one long episode
    held = from_replay_buffer(buffer)
    assert len(held) == 29
    np.testing.assert_array_equal(held.observation[1:], held.next_observation[:-1])
    seen = walks.witnesses[0].seen
    np.testing.assert_array_equal(held.observation, column(seen[-29:], 0))
    np.testing.assert_array_equal(held.next_observation[-1], column(seen[-1:], 2)[0])


def test_info_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="does not store info, so outcomes that read speed"):
        from_replay_buffer(walked()[1], info_keys=["speed"])


def test_an_empty_buffer_is_refused() -> None:
    model = build(DQN, Walks().env, OFF_POLICY)
    with pytest.raises(ValueError, match="empty"):
        from_replay_buffer(model.replay_buffer)


@pytest.mark.parametrize(
    ("algorithm", "settings", "form"),
    [
        (DQN, {}, "vector"),
        (SAC, {}, "continuous"),
        (DQN, {"n_steps": 3}, "vector"),
        (DQN, {"learning_starts": 1000}, "dict"),
    ],
)
def test_a_saved_buffer_is_read_without_running_it(
    algorithm: type[OffPolicyAlgorithm], settings: dict[str, Any], form: str, tmp_path: Path
) -> None:
    walks = Walks(form="dict") if form == "dict" else Walks(continuous=form == "continuous")
    model = build(algorithm, walks.env, OFF_POLICY | settings, *(["MultiInput"] if form == "dict" else []))
    filled(model)
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    env = walks.witnesses[0]
    spaces = {"observation_space": env.observation_space, "action_space": env.action_space}
    walks.compare(from_replay_buffer(load_replay_buffer(tmp_path / "buffer.pkl"), **spaces))


def test_files_that_are_no_buffers_get_one_clear_line(tmp_path: Path) -> None:
    broken, whole = tmp_path / "broken.pkl", pickle.dumps({"observations": [1, 2, 3]})
    for content, said in (
        (whole, "contains a dict, not a replay buffer"),
        (pickle.dumps(gym.spaces.Discrete(2)), "only ReplayBuffer and DictReplayBuffer of"),
        (b"", "corrupted pickle|not a pickle"),
        (b"not a pickle", "not a pickle"),
        (whole[:-5], "corrupted pickle|not a pickle"),
    ):
        broken.write_bytes(content)
        with pytest.raises(ValueError, match=rf"broken\.pkl.*({said})"):
            load_replay_buffer(broken)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("pos", 1000, "pos must be .* or less"),
        ("full", 3, "full must be true or false"),
        ("rewards", np.zeros((3, 3)), "rewards, dones and timeouts must all have the shape"),
        ("actions", np.zeros((3, 3, 1)), "must all have the same number of steps"),
        ("observations", "many", "observations must be an array of numbers, got a str"),
    ],
)
def test_a_buffer_whose_parts_do_not_fit_is_refused(name: str, value: Any, said: str, tmp_path: Path) -> None:
    _, buffer = walked()
    setattr(buffer, name, value)
    (tmp_path / "buffer.pkl").write_bytes(pickle.dumps(buffer))
    with pytest.raises(ValueError, match=rf"buffer\.pkl.*{said}"):
        load_replay_buffer(tmp_path / "buffer.pkl")


def test_a_run_learns_from_a_saved_buffer(tmp_path: Path, compose_config: Compose) -> None:
    model = build(DQN, DummyVecEnv([lambda: gym.make("CartPole-v1")]), OFF_POLICY)
    held = from_replay_buffer(filled(model))
    model.save_replay_buffer(tmp_path / "buffer.pkl")
    function = "policy.function={_target_: policies_of_a_user.left, _partial_: true}"
    chosen = ["env=cart_pole", "policy=function", function, "explainer=network", "evaluation=none"]
    from_buffer = ["training=buffer", f"training.path={tmp_path / 'buffer.pkl'}"]
    parts = parts_of(compose_config(*chosen, "explainer.fit_updates=5", *from_buffer))
    seen: list[Transitions] = []
    rng = np.random.default_rng(0)
    train(parts.training, parts.env, parts.trainer, rng, learning=[seen.append])
    assert parts.training.transitions(parts.trainer) == len(held) == 240
    np.testing.assert_array_equal(concatenate(seen).observation, held.observation)
    np.testing.assert_array_equal(concatenate(seen).action, held.action)
    with pytest.raises(ConfigError, match=r"training: .*shape \(4,\), but the env has \(6,\)"):
        parts_of(compose_config("env=acrobot", "outcomes=reward", *chosen[1:], *from_buffer))
    with pytest.raises(ConfigError, match="training: set the file of the replay buffer"):
        parts_of(compose_config(*chosen, "training=buffer"))
