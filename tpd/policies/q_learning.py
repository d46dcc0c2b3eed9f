"""Tabular Q-learning with action masks."""

from collections.abc import Iterable, Sequence

import numpy as np

from tpd.core.seeding import reset_seed
from tpd.core.types import (
    Handlers,
    IntArray,
    MetricsCallback,
    Rng,
    State,
    Transitions,
    TransitionsHandler,
    concatenate,
    no_metrics,
)
from tpd.envs import Environment
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import number, whole_number
from tpd.guards.sizes import require_memory
from tpd.kernels.learning import q_learning_update
from tpd.kernels.stepping import draw_columns
from tpd.policies.tabular import GreedyPolicy, best_valid
from tpd.sources.exploration import TOO_MANY_STATES, uniform
from tpd.sources.stepping import Choice, interact

BATCH = 10_000


class QLearning:
    """Tabular Q-learning from zero values, with epsilon-greedy exploration and linear decay of epsilon.

    stages: number of stages of the training. Each stage resets the environments and has its own random
    stream, so the result depends on the number of stages.
    """

    def __init__(
        self,
        env: Environment,
        rng: Rng,
        *,
        steps: int = 500_000,
        discount: float = 0.99,
        learning_rate: float = 0.1,
        epsilon_start: float = 1.0,
        epsilon_end: float = 0.05,
        epsilon_decay_steps: int = 250_000,
        num_envs: int = 250,
        explained_epsilon: float = 0.0,
        stages: int = 1,
    ) -> None:
        num_states, num_actions = env.table_shape()
        require_memory("a table of values", (num_states, num_actions), "float64", TOO_MANY_STATES)
        self.steps = whole_number("steps", steps, at_least=0)
        self.learning_rate = number("learning_rate", learning_rate, 0, 1, above_low=True)
        self.epsilon_start = number("epsilon_start", epsilon_start, 0, 1)
        self.epsilon_end = number("epsilon_end", epsilon_end, 0, 1)
        self.epsilon_decay_steps = whole_number("epsilon_decay_steps", epsilon_decay_steps, at_least=1)
        self.num_envs = whole_number("num_envs", num_envs, at_least=1)
        self.stages = whole_number("stages", stages, at_least=1)
        self._env = env
        self._streams = [rng] if self.stages == 1 else rng.spawn(self.stages)
        self._mask = env.mask(np.arange(num_states))
        self._q = np.zeros((num_states, num_actions))
        self.policy = GreedyPolicy(self._q, self._mask, discount, explained_epsilon)

    def epsilon(self, step: int) -> float:
        """The exploration rate at a step: linear decay, then constant."""
        progress = min(1.0, step / self.epsilon_decay_steps)
        return self.epsilon_start + progress * (self.epsilon_end - self.epsilon_start)

    def train(
        self,
        callbacks: Iterable[TransitionsHandler] = (),
        info_keys: Sequence[str] = (),
        on_metrics: MetricsCallback = no_metrics,
        stage: int | None = None,
    ) -> None:
        """Learn from `steps` transitions, and pass them to the callbacks in batches."""
        callbacks = tuple(callbacks)
        for k in range(self.stages) if stage is None else (stage,):
            begin, end = (self.steps * border // self.stages for border in (k, k + 1))
            if begin < end:
                self._train(begin, end, self._streams[k], callbacks, info_keys)

    def _train(self, done: int, end: int, rng: Rng, callbacks: Handlers, info_keys: Sequence[str]) -> None:
        """Train from step `done` to step `end`."""
        envs = self._env.make_vector(min(self.num_envs, end - done), info_keys)
        shown, unseen = done, list[Transitions]()
        epsilon, any_valid = self.epsilon(done), uniform(self._mask)

        def behaviour(states: IntArray) -> Choice:
            best = best_valid(self._q[states], self._mask[states])
            wild = draw_columns(any_valid, states, rng.random(len(states)))
            return Choice(np.where(rng.random(len(states)) < epsilon, wild, best))

        for _, step in interact(envs, self.policy, behaviour, reset_seed(rng), info_keys):
            step = step[: end - done]
            self._learn(step)
            done += len(step)
            epsilon = self.epsilon(done)
            unseen.append(step)
            if done == end or done - shown >= BATCH:
                batch, shown = concatenate(unseen), done
                unseen.clear()
                for callback in callbacks:
                    callback(batch)
            if done == end:
                break
        envs.close()

    def state(self) -> State:
        """The current action values."""
        return {"values": self._q, "version": np.array(self.policy.version)}

    def restore(self, state: State) -> None:
        """Load action values."""
        stored = CheckedArrays(state)
        values, version = stored.like("values", self._q), stored.number("version")
        self._q[:], self.policy.version = values, version

    def _learn(self, t: Transitions) -> None:
        self._env.require_choice(t.observation, self._mask[t.observation])
        self.policy.version += 1
        steps = t.observation, t.action, t.reward, t.next_observation, t.terminated
        q_learning_update(self._q, self._mask, *steps, self.learning_rate, self.policy.discount)
