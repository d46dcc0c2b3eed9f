"""Environments that write down their own walks, for agents of Stable-Baselines3."""

import copy
from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
)

from tpd.core.types import Array, Transitions

NUM_ENVS = 3
TINY = {"net_arch": [8]}
OFF_POLICY: dict[str, Any] = {"learning_starts": 60, "buffer_size": 1000, "policy_kwargs": TINY}
NOISE = NormalActionNoise(np.zeros(2), np.full(2, 0.3))


class Walk(gym.Env[Any, Any]):
    """Wanders until it stumbles; its last number is 100 at the stumble and 0 before.

    Nothing that a running normalisation has seen until then resembles that last observation.
    """

    def __init__(self, form: str = "vector", continuous: bool = False) -> None:
        self.form = form
        vector = spaces.Box(-1000, 1000, (3,), np.float32)
        image = spaces.Box(0, 255, (36, 38, 2), np.uint8)
        forms: dict[str, spaces.Space[Any]] = {
            "vector": vector,
            "image": image,
            "dict": spaces.Dict({"z": vector, "count": spaces.Discrete(1000), "image": image}),
        }
        self.observation_space = forms[form]
        low, high = np.array([-1, 2], dtype=np.float32), np.array([3, 2.5], dtype=np.float32)
        self.action_space = spaces.Box(low, high) if continuous else spaces.Discrete(4)
        self.reset()

    def _observation(self) -> Any:
        vector = np.array([self.position, self.count, 100 * self.stumbled])  # float64, as many envs give
        image = np.full((36, 38, 2), int(self.position) % 256, dtype=np.uint8)
        image[:, :, 1], image[0, :, 0] = self.count, 255 * self.stumbled
        return {"vector": vector, "image": image, "dict": {"z": vector, "image": image, "count": self.count}}[
            self.form
        ]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.count, self.stumbled = float(self.np_random.normal()), 0, False
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.position += float(np.sum(action)) + float(self.np_random.normal())
        self.count += 1
        self.stumbled = bool(self.np_random.random() < 0.1)
        word = "stumbles" if self.stumbled else "goes"
        return self._observation(), self.position / 7, self.stumbled, False, {"word": word}

    def action_masks(self) -> Any:
        return np.arange(4) != self.count % 4


class Witness(gym.Wrapper[Any, Any, Any, Any]):
    """Writes down every step, from within the environment."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.seen: list[tuple[Any, ...]] = []

    def reset(self, **kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self.last, info = self.env.reset(**kwargs)
        return self.last, info

    def step(self, action: Any) -> Any:
        following, reward, terminated, truncated, info = self.env.step(action)
        before, self.last = self.last, following
        self.seen.append(
            (
                before,
                np.array(action),
                following,
                reward,
                terminated,
                truncated and not terminated,
                info["word"],
            )
        )
        return following, reward, terminated, truncated, info


class Walks:
    """Several walks with a time limit, and their witnesses."""

    def __init__(self, *, num_envs: int = NUM_ENVS, **settings: Any) -> None:
        self.witnesses = [Witness(TimeLimit(Walk(**settings), 12)) for _ in range(num_envs)]
        self.env: VecEnv = DummyVecEnv([lambda w=w: w for w in self.witnesses])  # type: ignore[misc]

    def compare(self, shown: Transitions, leave_out: int = 0) -> None:
        """Every step shown is the one witnessed; `leave_out` is how many first steps are not shown."""
        for i, witness in enumerate(self.witnesses):
            seen, mine = witness.seen[leave_out:], shown[np.arange(i, len(shown), len(self.witnesses))]
            assert len(mine) == len(seen)
            before, action, following, reward, terminated, truncated, word = zip(*seen, strict=True)
            same_observations(mine.observation, before)
            same_observations(mine.next_observation, following)
            np.testing.assert_allclose(mine.action, np.stack(action), rtol=1e-6)
            np.testing.assert_array_equal(mine.reward, np.array(reward, dtype=np.float32))
            np.testing.assert_array_equal(mine.terminated, terminated)
            np.testing.assert_array_equal(mine.truncated, truncated)
            if mine.info:
                np.testing.assert_array_equal(mine.info["word"], word)
        assert shown.terminated.sum() > 5
        assert shown.truncated.sum() > 2


def same_observations(shown: Array, witnessed: Sequence[Any]) -> None:
    if shown.dtype.names is None:
        np.testing.assert_array_equal(shown, np.stack(witnessed).astype(shown.dtype))
        return
    for key in shown.dtype.names:
        same_observations(shown[key], [observation[key] for observation in witnessed])


def build(algorithm: type[BaseAlgorithm], env: VecEnv, settings: dict[str, Any], kind: str = "Mlp") -> Any:
    policy = f"{kind}LstmPolicy" if algorithm is RecurrentPPO else f"{kind}Policy"
    settings = copy.deepcopy(settings)  # SB3 writes into policy_kwargs
    return algorithm(policy, env, seed=0, device="cpu", **settings)
