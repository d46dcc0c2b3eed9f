"""Trainings of SB3 in stages: what each leaves to the next, and what all of them see as one."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from sb3_contrib import QRDQN, TQC, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.buffers import DictReplayBuffer, ReplayBuffer
from stable_baselines3.common.noise import OrnsteinUhlenbeckActionNoise

from sb3_ext.agents import TrainedAgent
from sb3_ext.stages import PROGRESS
from tpd.core.seeding import generator
from tpd.core.types import MetricsCallback, State, Transitions, concatenate
from tpd.envs import Environment

STEPS = 240
ON_POLICY = {"n_steps": 16}
PPO_LIKE = {"n_steps": 16, "batch_size": 16, "n_epochs": 2}
OFF_POLICY = {"learning_starts": 50, "batch_size": 16, "train_freq": 5, "buffer_size": 1000}
NOISE = OrnsteinUhlenbeckActionNoise(np.zeros(1), np.ones(1))
EVERY: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "A2C": (A2C, "CartPole-v1", ON_POLICY),
    "PPO": (PPO, "CartPole-v1", PPO_LIKE),
    "gSDE": (PPO, "Pendulum-v1", PPO_LIKE | {"use_sde": True}),
    "RecurrentPPO": (RecurrentPPO, "CartPole-v1", PPO_LIKE | {"policy": "MlpLstmPolicy"}),
    "MaskablePPO": (MaskablePPO, "FuelTaxi-v0", PPO_LIKE),
    "DQN": (DQN, "CartPole-v1", OFF_POLICY | {"target_update_interval": 70}),
    "DQN, small buffer": (DQN, "CartPole-v1", OFF_POLICY | {"buffer_size": 90}),
    "DQN, several steps": (DQN, "CartPole-v1", OFF_POLICY | {"n_steps": 3}),
    "DQN, dict": (DQN, "DictPole-v0", OFF_POLICY | {"policy": "MultiInputPolicy"}),
    "QRDQN": (QRDQN, "CartPole-v1", OFF_POLICY),
    "SAC": (SAC, "Pendulum-v1", OFF_POLICY),
    "TQC": (TQC, "Pendulum-v1", OFF_POLICY),
    "TD3": (TD3, "Pendulum-v1", OFF_POLICY),
    "DDPG": (DDPG, "Pendulum-v1", OFF_POLICY | {"action_noise": NOISE}),
}


class DictPole(gym.ObservationWrapper[Any, Any, Any]):
    """CartPole with its observations under names."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(gym.make("CartPole-v1", **settings))
        two: spaces.Space[Any] = spaces.Box(-np.inf, np.inf, (2,))
        self.observation_space = spaces.Dict({"place": two, "angle": two})

    def observation(self, observation: Any) -> dict[str, Any]:
        return {"place": observation[:2], "angle": observation[2:]}


gym.register("DictPole-v0", DictPole)


def agent(name: str, *, stages: int = 4, num_envs: int = 2, steps: int = STEPS, **more: Any) -> TrainedAgent:
    algorithm, env, settings = EVERY[name]
    network: dict[str, Any] = {"net_arch": [8]}
    if algorithm is RecurrentPPO:
        network["lstm_hidden_size"] = 4
    settings = {"policy": "MlpPolicy", "policy_kwargs": network} | settings | more
    return TrainedAgent(
        Environment(env),
        generator(0, "policy"),
        algorithm=partial(algorithm, **settings),
        steps=steps,
        num_envs=num_envs,
        deterministic=True,
        stages=stages,
    )


def copied(state: State) -> dict[str, Any]:
    return {name: value.copy() for name, value in state.items()}


def timeless(figures: list[Any]) -> MetricsCallback:
    """Notes all that is told but how long it took."""

    def note(told: Mapping[str, float], step: int) -> None:
        figures.append((step, {key: told[key] for key in told if not key.startswith("time/")}))

    return note


@pytest.mark.parametrize("name", EVERY)
def test_a_new_agent_goes_on_to_the_same_bits(name: str) -> None:
    whole, first, second = agent(name), agent(name), agent(name)
    seen, seen_again = list[Transitions](), list[Transitions]()
    figures, figures_again = list[Any](), list[Any]()
    whole.train([seen.append], on_metrics=timeless(figures))
    for stage in (0, 1):
        first.train([seen_again.append], on_metrics=timeless(figures_again), stage=stage)
    second.restore(copied(first.state()))
    for stage in (2, 3):
        second.train([seen_again.append], on_metrics=timeless(figures_again), stage=stage)
    due, found = whole.state(), second.state()
    assert list(due) == list(found)
    for key, value in due.items():
        assert (value.dtype, value.tobytes()) == (found[key].dtype, found[key].tobytes()), key
    for field in ("observation", "action", "next_observation", "reward"):
        shown, shown_again = (getattr(concatenate(batches), field) for batches in (seen, seen_again))
        assert shown.tobytes() == shown_again.tobytes()
    assert figures == figures_again


def test_all_steps_are_shown_and_rollouts_do_not_add_up() -> None:
    """Whole rollouts of 32 steps: 240 take eight of them, in one stage and in four."""
    for stages in (1, 4, 7):
        trainer, seen = agent("PPO", stages=stages), list[Transitions]()
        trainer.train([seen.append])
        assert sum(map(len, seen)) == trainer.model.num_timesteps == 256
        trainer.train([seen.append])  # all is done
        assert trainer.model.num_timesteps == 256


@pytest.mark.parametrize("name", ["PPO", "DQN", "SAC"])
def test_schedules_see_the_whole_training(name: str) -> None:
    """The same rates at the same times, however many stages."""

    def rates(stages: int) -> list[float]:
        asked: list[float] = []

        def schedule(left: float) -> float:
            asked.append(left)
            return 1e-3 * max(left, 0.1)

        trainer = agent(name, stages=stages, learning_rate=schedule)
        asked.clear()
        trainer.train()
        return [*asked, float(getattr(trainer.model, "exploration_rate", 0.0))]

    undivided, divided = rates(1), rates(3)
    assert divided == undivided
    assert undivided[-2] < 0.1 < 0.7 < undivided[0]


def test_random_steps_before_learning_are_taken_once() -> None:
    """With exploration that ends at once, all that is random are the first steps."""
    trainer = agent("DQN", stages=4, num_envs=1, learning_starts=120, exploration_fraction=0.001)
    updates = []
    for stage in range(4):
        trainer.train(stage=stage)
        updates.append(trainer.model._n_updates)
    assert updates == [0, 0, 12, 24]


def test_a_stage_is_a_training_of_its_own_stream() -> None:
    first, other = agent("DQN", num_envs=1), agent("DQN", num_envs=1)
    starts = []
    for trainer in (first, other):
        seen: list[Transitions] = []
        trainer.train([seen.append], stage=0)
        np.random.seed(7)  # noqa: NPY002
        trainer.train([seen.append], stage=1)
        starts.append(seen[1].observation[0])
        assert (seen[0].observation[0] != seen[1].observation[0]).all()
    np.testing.assert_array_equal(*starts)


def test_only_what_is_filled_is_kept_and_nothing_once_the_training_is_over() -> None:
    trainer = agent("DQN")
    trainer.train(stage=0)
    assert len(trainer.state()["buffer.observations"]) == 30  # of 500, in 2 environments each
    for stage in (1, 2, 3):
        trainer.train(stage=stage)
    assert not [name for name in trainer.state() if name.startswith("buffer")]


def test_no_return_of_several_steps_crosses_the_end_of_a_stage() -> None:
    trainer = agent("DQN, several steps")
    trainer.train(stage=0)
    buffer = trainer.model.replay_buffer  # type: ignore[attr-defined]
    trainer.train(stage=1)
    assert ((buffer.timeouts[29] > 0) | (buffer.dones[29] > 0)).all()


class OwnBuffer(ReplayBuffer):
    """Nobody knows what it keeps."""


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"replay_buffer_class": OwnBuffer}, "its replay buffer is a OwnBuffer"),
        (
            {
                "optimize_memory_usage": True,
                "replay_buffer_kwargs": {"handle_timeout_termination": False},
            },
            "optimize_memory_usage=True",
        ),
    ],
)
def test_what_is_not_understood_is_trained_in_one_stage(
    settings: dict[str, Any], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    trainer = agent("DQN", **settings)
    assert trainer.stages == 1
    assert "trained in one stage instead of 4" in caplog.text
    assert reason in caplog.text
    trainer.train(stage=0)
    again = agent("DQN", **settings)
    again.restore(copied(trainer.state()))
    probe = np.zeros((1, 4), dtype=np.float32)
    np.testing.assert_array_equal(again.policy.action_values(probe), trainer.policy.action_values(probe))


def test_dicts_are_kept_by_their_keys() -> None:
    trainer = agent("DQN, dict")
    assert isinstance(trainer.model.replay_buffer, DictReplayBuffer)  # type: ignore[attr-defined]
    trainer.train(stage=0)
    assert {"buffer.observations.angle", "buffer.next_observations.place"} <= set(trainer.state())


def test_a_policy_in_training_is_sent_to_other_processes_without_its_training() -> None:
    trainer, sent = agent("DQN", stages=1), list[bytes]()
    trainer.train([lambda transitions: sent.append(cloudpickle.dumps(trainer.policy))])
    arrived = cloudpickle.loads(sent[-1])
    assert PROGRESS not in vars(arrived.model)
    assert arrived.model.env is None
    assert PROGRESS not in vars(trainer.model)


def test_no_stages_are_refused() -> None:
    with pytest.raises(ValueError, match="stages must be 1 or more, got 0"):
        agent("PPO", stages=0)
