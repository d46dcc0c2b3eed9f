"""Samples a policy's actions for many rollouts, each from a random stream of its own."""

import pickle
from collections.abc import Sequence

import numpy as np

from tpd.core.types import Array, BoolArray, DiscretePolicy, IntArray, Policy
from tpd.envs import Environment
from tpd.policies.followed import Followed, observed
from tpd.sources.random_sources import GLOBAL

POLICY = 1
"""Part of the seed, so that the policy's stream differs from the world's."""


class PolicyStreams:
    """Samples actions for a batch of rollouts; a rollout's actions do not depend on the rest of the batch."""

    def __init__(
        self, env: Environment, policy: Policy, keys: Sequence[tuple[int, ...]], followed: Followed | None
    ) -> None:
        self._env, self._policy, self._keys, self._followed = env, policy, keys, followed
        self._generators: dict[int, np.random.Generator] = {}
        self.drew: BoolArray = np.zeros(len(keys), dtype=np.bool_)
        """[rollout]: whether any of its actions was random"""

    def sample(self, observations: Array, rows: IntArray, step: int) -> Array:
        """[row, ...]: the actions of these rollouts at a step, given their observations.

        A behaviour that replaces the policy draws from the same generators.
        """
        followed = self._followed
        instead = None if followed is None else followed.at(step)
        if followed is None or instead is None:
            return self._sample(self._policy, observations, rows)
        shown = observed(self._env, self._policy, observations)
        actions = np.asarray(followed.asked(self._sample, instead, shown, rows))
        followed.check(self._env, shown, actions)
        return actions

    def _sample(self, policy: Policy, observations: Array, rows: IntArray) -> Array:
        if isinstance(policy, DiscretePolicy):
            probabilities = policy.probabilities(observations)
            self.drew[rows] |= probabilities.max(axis=1) < 1
            chances = np.array([self._generator(row).random() for row in rows])
            from tpd.kernels.stepping import draw_columns  # numba takes long to import

            return draw_columns(probabilities, np.arange(len(rows)), chances)
        untouched = np.random.default_rng(0)
        before = untouched.bit_generator.state, pickle.dumps(GLOBAL)
        actions = np.array(policy.sample(observations, untouched))  # a copy, because it is kept
        if (untouched.bit_generator.state, pickle.dumps(GLOBAL)) == before:
            return actions  # nothing was drawn
        self.drew[rows] = True
        each = [policy.sample(observations[i : i + 1], self._generator(row)) for i, row in enumerate(rows)]
        return np.concatenate(each)

    def _generator(self, row: int) -> np.random.Generator:
        row = int(row)
        if row not in self._generators:
            entropy = [*self._keys[row], POLICY]
            self._generators[row] = np.random.default_rng(np.random.SeedSequence(entropy))
        return self._generators[row]
