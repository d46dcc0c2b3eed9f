"""Tabular Q-learning with action masks."""

from collections.abc import Iterable, Sequence

import numpy as np

from tpd.checks import number, whole_number
from tpd.envs import Environment
from tpd.kernels import draw_columns, q_learning_update
from tpd.memory import require
from tpd.policies.tabular import GreedyPolicy, best_valid
from tpd.seeding import reset_seed
from tpd.sources.exploration import TOO_MANY_STATES, uniform
from tpd.sources.interaction import interact
from tpd.types import IntArray, Report, State, Transitions, TransitionsCallback, concatenate, no_report

BATCH = 10_000


class QLearning:
    """Learns a table of values from zero, exploring less and less."""

    def __init__(
        self,
        env: Environment,
        rng: np.random.Generator,
        *,
        steps: int,
        discount: float,
        learning_rate: float,
        epsilon_start: float,
        epsilon_end: float,
        epsilon_decay_steps: int,
        num_envs: int,
        explained_epsilon: float,
    ) -> None:
        num_states, num_actions = env.table_shape()
        require("a table of values", (num_states, num_actions), "float64", TOO_MANY_STATES)
        self.steps = whole_number("steps", steps, at_least=0)
        self.learning_rate = number("learning_rate", learning_rate, 0, 1, above_low=True)
        self.epsilon_start = number("epsilon_start", epsilon_start, 0, 1)
        self.epsilon_end = number("epsilon_end", epsilon_end, 0, 1)
        self.epsilon_decay_steps = whole_number("epsilon_decay_steps", epsilon_decay_steps, at_least=1)
        self.num_envs = whole_number("num_envs", num_envs, at_least=1)
        self._env = env
        self._rng = rng
        self._mask = env.mask(np.arange(num_states))
        self._q = np.zeros((num_states, num_actions))
        self.policy = GreedyPolicy(self._q, self._mask, discount, explained_epsilon)

    def epsilon(self, step: int) -> float:
        """The exploration rate after so many steps: a linear decay, then constant."""
        progress = min(1.0, step / self.epsilon_decay_steps)
        return self.epsilon_start + progress * (self.epsilon_end - self.epsilon_start)

    def train(
        self,
        callbacks: Iterable[TransitionsCallback] = (),
        info_keys: Sequence[str] = (),
        report: Report = no_report,
    ) -> None:
        """Learn from `steps` transitions, showing them to the callbacks in batches."""
        callbacks = tuple(callbacks)
        if self.steps == 0:
            return
        envs = self._env.make_vector(min(self.num_envs, self.steps), info_keys)
        done, shown, unseen = 0, 0, list[Transitions]()
        epsilon, any_valid = self.epsilon_start, uniform(self._mask)

        def behaviour(states: IntArray) -> IntArray:
            best = best_valid(self._q[states], self._mask[states])
            wild = draw_columns(any_valid, states, self._rng.random(len(states)))
            return np.where(self._rng.random(len(states)) < epsilon, wild, best)

        for _, step in interact(envs, self.policy, behaviour, reset_seed(self._rng), info_keys):
            step = step[: self.steps - done]
            self._learn(step)
            done += len(step)
            epsilon = self.epsilon(done)
            unseen.append(step)
            if done == self.steps or done - shown >= BATCH:
                batch, shown = concatenate(unseen), done
                unseen.clear()
                for callback in callbacks:
                    callback(batch)
            if done == self.steps:
                break
        envs.close()

    def state(self) -> State:
        """The values, once they are learned."""
        return {"values": self._q, "version": np.array(self.policy.version)}

    def restore(self, state: State) -> None:
        """Take the values as learned."""
        self._q[:] = state["values"]
        self.policy.version = int(state["version"])

    def _learn(self, t: Transitions) -> None:
        self.policy.version += 1
        q_learning_update(
            self._q,
            self._mask,
            t.observation,
            t.action,
            t.reward,
            t.next_observation,
            t.terminated,
            self.learning_rate,
            self.policy.discount,
        )
