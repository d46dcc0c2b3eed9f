"""Categorical FHTD: a network that learns the distribution of the return over 1, 2, ... steps.

Every pair has its own atoms, around a learned centre and in units of a learned spread. So the resolution does
not suffer if the bound of the reward is much larger than the rewards that occur.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any, NamedTuple, Unpack

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor

from tpd.core.distributions import BoundedDistribution, with_unknown
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, Policy, State
from tpd.predictors.network.fitted import follow
from tpd.predictors.network.next_actions import NextActions
from tpd.predictors.network.pair_network import Architecture, PairNetwork
from tpd.predictors.network.replay_buffer import Experience
from tpd.predictors.network.state import put_training_state, training_state

FEWEST_ATOMS = 11
REACH = 15.0  # spreads; at most 1 / REACH² of any distribution lies farther from its mean
BEND = 3.0  # how much closer the atoms are near the centre
LEAST_SPREAD, LARGEST_LOG = 0.1, 5.0  # of a spread, in units of a return
LARGEST_GRADIENT = 10.0
ROWS_AT_ONCE = 1024


def standard_atoms(count: int) -> Tensor:
    """[atom]: from -REACH to REACH, closer together in the middle."""
    return REACH * torch.sinh(BEND * torch.linspace(-1, 1, count)) / math.sinh(BEND)


def project(values: Tensor, mass: Tensor, atoms: Tensor) -> Tensor:
    """[..., atom]: the mass of values [..., value], projected onto standard atoms so that the mean is kept.

    Values beyond the last atoms are clipped to them.
    """
    count = len(atoms)
    values = values.clamp(-REACH, REACH)
    size = values.abs() * (math.sinh(BEND) / REACH)
    bent = torch.log(size + torch.sqrt(size**2 + 1)).copysign(values)  # asinh, several times faster
    below = ((bent / BEND + 1) * ((count - 1) / 2)).long().clamp_(0, count - 2)  # rounds down, from 0
    left, gap = (each.expand(*mass.shape[:-1], -1).gather(-1, below) for each in (atoms, atoms.diff()))
    share = ((values - left) / gap).clamp_(0, 1) * mass
    projected = mass.new_zeros(*mass.shape[:-1], count)
    projected.scatter_add_(-1, below, mass - share)
    return projected.scatter_add_(-1, below + 1, share)


class Returns(NamedTuple):
    """Distributions of the return over 1, 2, ... steps."""

    centre: Tensor
    """[batch, horizon]"""
    spread: Tensor
    """[batch, horizon]"""
    logits: Tensor
    """[batch, horizon, atom]"""

    def values(self, atoms: Tensor) -> Tensor:
        """[batch, horizon, atom], ascending."""
        return self.centre[..., None] + self.spread[..., None] * atoms

    @property
    def mass_before(self) -> Tensor:
        """[batch, horizon, atom]: probabilities of the return over one step less (arbitrary at 0 steps)."""
        return torch.roll(self.logits.softmax(dim=-1), 1, dims=1)


@dataclass(frozen=True)
class ReturnSettings:
    """Settings of a return network beyond those that it shares with the outcome network."""

    atoms: int
    discount: float
    """The policy's discount."""
    bound: float
    """The largest possible |reward|."""


def return_settings(atoms: int, policy: Policy, outcomes: OutcomeSet) -> ReturnSettings:
    """The settings of a return network; raises if returns cannot be learned."""
    if (bound := outcomes.legend.reward_bound) is None:
        raise ValueError(
            f"return_atoms={atoms} needs outcomes that account for the reward, but these do not: set "
            "explainer.return_atoms=0"
        )
    if atoms < FEWEST_ATOMS:
        raise ValueError(f"return_atoms must be 0, or {FEWEST_ATOMS} or more, got {atoms}")
    return ReturnSettings(int(atoms), policy.discount, bound)


class ReturnNetwork(PairNetwork):
    """Predicts centre, spread and atom probabilities of each pair, for every number of steps."""

    unit: Tensor
    atoms: Tensor
    """[atom]"""

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        settings: ReturnSettings,
        *,
        horizon: int,
        **architecture: Unpack[Architecture],
    ) -> None:
        super().__init__(observation_space, action_space, horizon * (2 + settings.atoms), **architecture)
        self.horizon, self.of_returns = horizon, settings
        self.register_buffer("atoms", standard_atoms(settings.atoms), persistent=False)
        self.register_buffer("unit", torch.ones(horizon))

    @property
    def steps(self) -> Tensor:
        """[horizon]: the discounted number of steps."""
        steps = torch.arange(self.horizon, device=self.device)
        return torch.cumsum(self.of_returns.discount**steps, dim=0)

    @torch.no_grad()
    def start_at(self, mean: float, size: float) -> None:
        """Initialise the biases: a normal distribution around this mean reward, with this size per step."""
        self.unit.copy_(size * self.steps)
        bell = torch.log(torch.gradient(self.atoms)[0]) - self.atoms**2 / 2
        level = torch.cat([torch.tensor([mean / size, 0.0], device=self.device), bell])
        self.heads.shared.bias.copy_(level.repeat(self.horizon))

    def returns(self, outputs: Tensor) -> Returns:
        """The outputs [..., outputs] as distributions."""
        outputs = outputs.view(*outputs.shape[:-1], self.horizon, -1)
        spread = LEAST_SPREAD + outputs[..., 1].clamp(max=LARGEST_LOG).exp()
        return Returns(outputs[..., 0] * self.unit, spread * self.unit, outputs[..., 2:])

    @torch.no_grad()
    def distribution(self, observations: Array, actions: Array, unknown: BoolArray) -> BoundedDistribution:
        """[batch]: the return distribution over the horizon; any possible return for unknown pairs."""
        values, mass = (np.empty((0, len(self.atoms))) for _ in range(2))
        for start in range(0, len(observations), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            features = self.features(observations[rows], actions[rows])
            found = self.returns(self.outputs(features, actions[rows]))
            values = np.concatenate([values, found.values(self.atoms)[:, -1].numpy(force=True)])
            mass = np.concatenate([mass, found.logits[:, -1].cpu().double().softmax(dim=-1).numpy()])
        largest = self.of_returns.bound * float(self.steps[-1])
        known = np.where(unknown, 0.0, 1.0)[:, None]
        return with_unknown(np.clip(values, -largest, largest), np.hstack([mass * known, 1 - known]), largest)


class ReturnLearner:
    """Learns `Z_h` from the target: reward plus discounted `Z_{h-1}` of the policy's next action, projected.

    It uses the batches of the outcome network, but a network of its own. So expected outcomes are the same
    whether returns are learned or not.
    """

    def __init__(self, network: ReturnNetwork, rewards: FloatArray, rate: float, follow_rate: float) -> None:
        self.network = network
        self.target_network = copy.deepcopy(network).requires_grad_(False)
        self._networks = {"network": self.network, "target_network": self.target_network}
        self._weights = rewards.astype(np.float32)
        self._optimizer = torch.optim.Adam(network.parameters(), lr=rate, fused=True)
        self._follow_rate = follow_rate
        self._beyond: list[float] = []

    def update_scales(self, observations: Array, outcome: FloatArray, first: bool) -> None:
        """Update the scales of observations and, with the first batch, of rewards."""
        reward = self._reward(outcome)
        size = float(reward.square().mean().sqrt()) or 1.0  # a bound may be far larger than what occurs
        for network in (self.network, self.target_network):
            if first:
                network.start_at(float(reward.mean()), size)
            network.see(observations)

    def learn(self, batch: Experience, following: NextActions) -> None:
        """One update, given the policy's next actions after each transition."""
        loss = self._loss(self._of_pairs(self.network, batch), batch, following)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), LARGEST_GRADIENT)
        self._optimizer.step()
        follow(self.target_network, self.network, self._follow_rate)

    def _loss(self, predicted: Returns, batch: Experience, following: NextActions) -> Tensor:
        """Cross-entropy of the atoms, plus that of a normal distribution with this centre and spread.

        The target is the reward, then the target network's distribution for the next action. Atoms are placed
        by the target network. Centre and spread learn only from its centre and spread: if they followed its
        atoms too, both would correct the same error.
        """
        with torch.no_grad():
            placed = self._of_pairs(self.target_network, batch)
            after = self.target_network.returns(following.outputs(self.target_network))
            centre, spread = (following.of_rows(each) for each in placed[:2])
            values = self.longer(after.values(self.target_network.atoms), batch, following)
            mass = after.mass_before
            values = (values - centre[..., None]) / spread[..., None]
            target = following.mean(project(values, mass, self.network.atoms))
            self._beyond.append(float(following.mean((mass * (values.abs() > REACH)).sum(dim=-1)).mean()))
            ends = torch.stack([after.centre - after.spread, after.centre + after.spread], dim=-1)
            ends = (self.longer(ends, batch, following) - centre[..., None]) / spread[..., None]
            shift, square = following.mean(ends.mean(dim=-1)), following.mean((ends**2).mean(dim=-1))
        atoms = -(target * predicted.logits.log_softmax(dim=-1)).sum(dim=-1)
        moved, wider = (predicted.centre - placed.centre) / placed.spread, predicted.spread / placed.spread
        bell = wider.log() + (square - 2 * moved * shift + moved**2) / wider**2 / 2
        return (atoms + bell).mean()

    def _of_pairs(self, network: ReturnNetwork, batch: Experience) -> Returns:
        """A network's distributions for the pairs of a batch."""
        features = network.features(batch.observation, batch.action)
        return network.returns(network.outputs(features, batch.action))

    def longer(self, values: Tensor, batch: Experience, following: NextActions) -> Tensor:
        """[choice, horizon, atom]: reward plus discounted return of one step less, unless terminated."""
        later = torch.cat([torch.zeros_like(values[:, :1]), values[:, :-1]], dim=1)
        goes_on = 1 - torch.from_numpy(batch.outcome[:, -1]).to(values.device)
        reward, factor = (
            following.of_rows(each)[:, None, None]
            for each in (self._reward(batch.outcome), self.network.of_returns.discount * goes_on)
        )
        return reward + factor * later

    def _reward(self, outcome: FloatArray) -> Tensor:
        """[batch]: the reward of outcomes [batch, outcome], whose last column is termination."""
        return torch.from_numpy(outcome[:, :-1] @ self._weights).to(self.network.device)

    def metrics(self) -> dict[str, float]:
        """The fraction of mass clipped to the last atoms, since the last call."""
        beyond, self._beyond = self._beyond, []
        return {"explainer/returns_beyond": float(np.mean(beyond))} if beyond else {}

    def state(self) -> State:
        """Both networks and the optimizer."""
        return training_state(self._networks, self._optimizer)

    def restore(self, state: State) -> None:
        """Continue from that state."""
        put_training_state(self._networks, self._optimizer, state)
