"""Tabular environments: the transition table as arrays, and many copies stepped at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from tpd.core.types import BoolArray, FloatArray, IntArray, Rng, Transitions

Table = Mapping[int, Mapping[int, Sequence[tuple[float, int, float, bool]]]]


@dataclass(frozen=True)
class TabularModel:
    """The table `P[s][a] = [(probability, next state, reward, terminated), ...]` as arrays."""

    probability: FloatArray
    """[state, action, branch]; padded with 0 if a pair has fewer branches"""
    next_state: IntArray
    """[state, action, branch]"""
    reward: FloatArray
    """[state, action, branch]"""
    terminated: BoolArray
    """[state, action, branch]"""
    start: FloatArray
    """[state]: probability of being the initial state"""
    mask: BoolArray
    """[state, action]: which actions are valid; all of them in a state without a valid action"""

    @classmethod
    def from_table(cls, table: Table, start: FloatArray, mask: BoolArray | None = None) -> "TabularModel":
        """Convert a toy_text table."""
        num_states, num_actions = len(table), len(table[0])
        branches = max(len(table[s][a]) for s in table for a in table[s])
        shape = (num_states, num_actions, branches)
        probability, reward = np.zeros(shape), np.zeros(shape)
        next_state, terminated = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.bool_)
        for s, a in np.ndindex(num_states, num_actions):
            for b, entry in enumerate(table[s][a]):
                probability[s, a, b], next_state[s, a, b], reward[s, a, b], terminated[s, a, b] = entry
        _check_table(probability, next_state, reward)
        if mask is None:
            mask = np.ones((num_states, num_actions), dtype=np.bool_)
        mask = mask | ~mask.any(axis=1, keepdims=True)
        return cls(probability, next_state, reward, terminated, np.asarray(start, np.float64), mask)

    @property
    def num_states(self) -> int:
        return int(self.probability.shape[0])

    @property
    def num_actions(self) -> int:
        return int(self.probability.shape[1])

    def transitions(self) -> tuple[Transitions, FloatArray]:
        """Every possible transition, once, and its probability [batch]."""
        s, a, b = np.nonzero(self.probability)
        transitions = Transitions(
            observation=s,
            action=a,
            next_observation=self.next_state[s, a, b],
            reward=self.reward[s, a, b],
            terminated=self.terminated[s, a, b],
            truncated=np.zeros(len(s), dtype=np.bool_),
        )
        return transitions, self.probability[s, a, b]


def _check_table(probability: FloatArray, next_state: IntArray, reward: FloatArray) -> None:
    """Refuse invalid dynamics [state, action, branch]; the error names the first invalid pair."""
    num_states = len(probability)
    wrong = {
        "probabilities that do not sum to 1": ~np.isclose(probability.sum(axis=2), 1),
        "a negative probability": (probability < 0).any(axis=2),
        "a next state that does not exist": ((next_state < 0) | (next_state >= num_states)).any(axis=2),
        "a reward that is not finite": ~np.isfinite(reward).all(axis=2),
    }
    for what, pairs in wrong.items():
        for s, a in np.argwhere(pairs)[:1].tolist():
            raise ValueError(f"the table P has {what} in state {s}, action {a}")


class TabularVectorEnv(VectorEnv[IntArray, IntArray, Any]):
    """Many copies of a tabular environment, stepped together in NumPy."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.NEXT_STEP}

    def __init__(self, model: TabularModel, num_envs: int, max_episode_steps: int | None = None) -> None:
        self.model, self.num_envs, self.max_episode_steps = model, num_envs, max_episode_steps
        self.single_observation_space = gym.spaces.Discrete(model.num_states)
        self.single_action_space = gym.spaces.Discrete(model.num_actions)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._masks = model.mask.astype(np.int8)
        self._tables = model.probability, model.next_state, model.reward, model.terminated
        self.restart: Callable[[IntArray], IntArray] | None = None
        """If set, replaces initial states of episodes."""
        self._start_states = np.flatnonzero(model.start)
        self._start_cumulative = np.cumsum(model.start[self._start_states])[:-1]
        self._state: IntArray = np.zeros(num_envs, dtype=np.int64)
        self._elapsed = np.zeros(num_envs, dtype=np.int64)
        self._done = np.zeros(num_envs, dtype=np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[IntArray, dict[str, Any]]:
        """Start an episode in every copy."""
        if isinstance(seed, list):
            raise ValueError("reset: all copies share one random generator: pass one seed, not a list")
        super().reset(seed=seed)
        self._state = self._start(self.num_envs)
        self._elapsed[:] = 0
        self._done[:] = False
        return self._state.copy(), {"action_mask": self._masks[self._state]}

    def step(self, actions: IntArray) -> tuple[IntArray, FloatArray, BoolArray, BoolArray, dict[str, Any]]:
        """Take one step in every copy; a copy whose episode has ended is reset instead."""
        actions = np.asarray(actions)
        state, reset, draws = self._state, self._done, self.np_random.random(self.num_envs)
        from tpd.kernels.stepping import step_table  # numba is slow to import

        branch, self._state, reward, terminated = step_table(*self._tables, state, actions, draws)
        info = self._step_info(state, actions, branch, reset)
        self._elapsed += 1
        if reset.any():
            self._state[reset] = self._start(int(reset.sum()))
            reward[reset], terminated[reset], self._elapsed[reset] = 0, False, 0
        truncated = np.zeros(self.num_envs, dtype=np.bool_)
        if self.max_episode_steps is not None:
            truncated = self._elapsed >= self.max_episode_steps
        self._done = terminated | truncated
        info["action_mask"] = self._masks[self._state]
        return self._state.copy(), reward, terminated, truncated, info

    def roll(self, behaviour: FloatArray, steps: int, rng: Rng) -> Transitions:
        """Take `steps` steps in every copy, by the action probabilities behaviour [state, action]."""
        size, most = (steps, self.num_envs), self.num_envs * ((steps + 1) // 2)
        starts = self._start(most)  # enough, because an episode has at least one step
        copies = self._state, self._elapsed, self._done
        draws = rng.random(size), self.np_random.random(size)
        from tpd.kernels.stepping import roll_table

        limit = self.max_episode_steps or 0
        transitions = roll_table(*self._tables, behaviour, *copies, limit, starts, *draws)
        return Transitions(*transitions)

    def _step_info(
        self, state: IntArray, actions: IntArray, branch: IntArray, reset: BoolArray
    ) -> dict[str, Any]:
        """Entries of `info` besides the mask; a copy that was reset took no step."""
        return {}

    def _start(self, count: int) -> IntArray:
        index = np.searchsorted(self._start_cumulative, self.np_random.random(count), side="right")
        starts = self._start_states[index]
        return starts if self.restart is None else self.restart(starts)
