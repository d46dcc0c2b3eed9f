"""Rollouts of the policy in a learned model, and the expected outcomes in them."""

from collections.abc import Iterator

import numpy as np
import torch
from gymnasium import spaces
from scipy.special import ndtri
from torch import Tensor
from torch.nn import functional

from tpd.core.outcomes import OutcomeSet
from tpd.core.pairs import blocks
from tpd.core.seeding import generator
from tpd.core.types import Array, DiscretePolicy, FloatArray, Policy, RecurrentPolicy, Rng, Transitions
from tpd.predictors.model.world_model import Noise, Step, WorldModel

ROWS_AT_ONCE = 8192
UNLIKELY = 1e-6  # outcomes of a less likely termination are not computed


class Simulation:
    """Expected outcomes as means over particles; each particle uses one member of the ensemble.

    All pairs share the same noise. So a prediction does not depend on the rest of the batch, and actions are
    compared with common random numbers. Termination is not sampled: both branches of a step are evaluated,
    weighted by the probability that the particle is still running.

    mean: no noise; every step takes the mean change and the policy's most likely action, and terminates if
        that has a probability above 0.5. That is one trajectory for each member.
    """

    def __init__(
        self,
        model: WorldModel,
        action_space: spaces.Space[object],
        policy: Policy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        particles: int,
        mean: bool = False,
    ) -> None:
        self.model, self.policy, self.outcomes = model, policy, outcomes
        self.horizon, self.particles = horizon, particles
        self._mean, self._action_space = mean, action_space
        self._first = np.array([o.first for o in outcomes.outcomes])
        self._noise = list(_noise(model.members, particles // model.members, model.observed, horizon))
        self._uniform = _spread(generator(0, "simulated actions"), particles, (horizon,))
        if mean:
            middle = (0.0, 0.5, 0.5, 0.0)  # of normal, flag, kind, reward
            self._noise = [Noise(*map(torch.full_like, noise, middle)) for noise in self._noise]

    def expected(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        at_once = max(1, ROWS_AT_ONCE // self.particles)
        if self._restless(observations):
            at_once = 1  # its samples must not depend on the rest of the batch
        parts = [np.empty((0, self.horizon, self.outcomes.width), dtype=np.float32)]
        for rows in blocks(len(observations), at_once):
            parts.append(self._together(observations[rows], actions[rows]))
        return np.concatenate(parts)

    def _restless(self, observations: Array) -> bool:
        """Whether the policy samples its actions with random numbers of its own."""
        if self._mean or isinstance(self.policy, DiscretePolicy) or not len(observations):
            return False
        some = observations[:8]
        draws = [self.policy.sample(some, np.random.default_rng(seed)) for seed in range(3)]
        return any(not np.array_equal(draws[0], draw) for draw in draws[1:])

    def _together(self, observations: Array, actions: Array) -> FloatArray:
        """[pair, horizon, outcome] of a few pairs; rows are ordered by member, particle, pair."""
        pairs, rng = len(observations), np.random.default_rng(0)
        observation = np.tile(observations, (self.particles, *(1,) * (observations.ndim - 1)))
        action = np.tile(actions, (self.particles, *(1,) * (actions.ndim - 1)))
        running = np.ones(len(observation))
        before_first = np.ones((len(observation), int(self._first.sum())))
        expected = np.empty((pairs, self.horizon, self.outcomes.width), dtype=np.float32)
        for h in range(self.horizon):
            if h:
                action = self._act(observation, np.repeat(self._uniform[:, h - 1], pairs), rng)
            step = self._step(observation, action, self._noise[h], pairs)
            after = self._carry(observation, step.observation)
            end = step.end.reshape(-1).numpy(force=True).astype(np.float64)
            end = np.rint(end) if self._mean else end
            reward = step.reward.reshape(2, -1).numpy(force=True)
            going_on, ending = self._observe(observation, action, after, reward, end)
            weight = np.repeat(running[:, None], self.outcomes.width - 1, axis=1)
            weight[:, self._first] = before_first
            seen = weight * ((1 - end[:, None]) * going_on + end[:, None] * ending)
            ended = (running * end)[:, None]
            means = np.concatenate([seen, ended], axis=1).reshape(self.particles, pairs, -1).mean(axis=0)
            expected[:, h] = means
            running = running * (1 - end)
            before_first = before_first * (1 - end[:, None]) * (1 - going_on[:, self._first])
            observation = after
        return expected

    @torch.no_grad()
    def _step(self, observation: Array, action: Array, noise: Noise, pairs: int) -> Step:
        model, device = self.model, self.model.scales.mean.device
        own = observation.reshape(len(observation), -1)[:, : model.observed]
        seen = torch.as_tensor(own, dtype=torch.float32, device=device)
        taken = encode_actions(self._action_space, action).to(device).view(model.members, -1, model.acted)
        each = Noise(*(part.to(device).repeat_interleave(pairs, dim=1) for part in noise))
        return model.step(seen.view(model.members, -1, model.observed), taken, each)

    def _carry(self, before: Array, simulated: Tensor) -> Array:
        """[row, ...]: simulated observations with the policy's next hidden state, if it has one."""
        seen = simulated.reshape(len(before), -1).numpy(force=True).astype(before.dtype)
        if isinstance(self.policy, RecurrentPolicy):
            return np.concatenate([seen, self.policy.advance(before).astype(before.dtype)], axis=1)
        return seen.reshape(before.shape)

    def _act(self, observation: Array, uniform: FloatArray, rng: Rng) -> Array:
        if self._mean:
            return np.asarray(self.policy.action(observation))
        if not isinstance(self.policy, DiscretePolicy):
            return np.asarray(self.policy.sample(observation, rng))
        chances = np.cumsum(self.policy.probabilities(observation), axis=1)
        chances /= chances[:, -1:]
        return np.asarray((chances <= uniform[:, None]).sum(axis=1))

    def _observe(
        self, observation: Array, action: Array, after: Array, reward: FloatArray, end: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """[row, outcome] both, without termination: if the episode goes on, and if it terminates."""
        goes_on, ends = np.zeros(len(end), dtype=np.bool_), np.ones(len(end), dtype=np.bool_)
        steps = Transitions(observation, action, after, reward[0], goes_on, goes_on)
        going_on = self.outcomes.simulated(steps)
        ending = np.zeros_like(going_on)
        likely = end > UNLIKELY
        if likely.any():
            last = Transitions(observation, action, after, reward[1], ends, goes_on)[likely]
            ending[likely] = self.outcomes.simulated(last)
        return going_on, ending


def encode_actions(space: spaces.Space[object], actions: Array) -> Tensor:
    """[row, number]: one-hot if actions are discrete, else scaled to [-1, 1]."""
    if isinstance(space, spaces.Discrete):
        return functional.one_hot(torch.as_tensor(actions).long(), int(space.n)).float()
    assert isinstance(space, spaces.Box)
    flat = torch.as_tensor(actions, dtype=torch.float32).reshape(len(actions), -1)
    low, high = (torch.as_tensor(bound.ravel(), dtype=torch.float32) for bound in (space.low, space.high))
    return 2 * (flat - low) / (high - low).clamp(min=1e-6) - 1


def _noise(members: int, particles: int, observed: int, horizon: int) -> Iterator[Noise]:
    """The noise of each step, [member, particle, ...]."""
    rng = generator(0, "simulated steps")
    for _ in range(horizon):
        spread = _spread(rng, members * particles, (2 * observed + 2,)).reshape(members, particles, -1)
        normal, flag, kind, reward = np.split(spread, [observed, 2 * observed, 2 * observed + 1], axis=2)
        parts = ndtri(normal), flag, kind[..., 0], ndtri(reward[..., 0])
        yield Noise(*(torch.from_numpy(part.astype(np.float32)) for part in parts))


def _spread(rng: Rng, count: int, shape: tuple[int, ...]) -> FloatArray:
    """[count, *shape]: Latin hypercube samples in (0, 1), stratified along the first axis."""
    numbers = np.arange(count).reshape(-1, *(1,) * len(shape))
    order = rng.permuted(np.broadcast_to(numbers, (count, *shape)), axis=0)
    return np.asarray((order + rng.uniform(0.01, 0.99, (count, *shape))) / count)
