"""Statistics of the data for a learned model: scales, ranges, binary numbers, and recurring rewards."""

import numpy as np
import torch
from torch import Tensor, nn

from tpd.core.types import Array, BoolArray, FloatArray

ATOMS = 8  # maximum number of recurring reward values
RECURRENT = 0.02  # minimum fraction of steps with exactly this reward, for a value to be recurring
FARTHEST = 10.0  # standard deviations; inputs are clipped to this
RUNNING, ENDING = 0, 1


class Scales(nn.Module):
    """Statistics that are measured once, on all transitions, before training."""

    mean: Tensor
    deviation: Tensor
    change_mean: Tensor
    change_deviation: Tensor
    low: Tensor
    high: Tensor
    is_flag: Tensor
    """[observation]: which numbers are binary: they take only the values `low` and `high`"""
    atoms: Tensor
    """[2, atom]: recurring rewards, of steps without and with termination"""
    kinds: Tensor
    """[2, atom + 1]: which atoms exist; the last kind stands for any other reward and always exists"""
    rewards: Tensor
    """[2, 4]: mean, deviation, minimum and maximum of all other rewards"""

    def __init__(self, size: int) -> None:
        super().__init__()
        for name in ("mean", "deviation", "change_mean", "change_deviation", "low", "high"):
            self.register_buffer(name, torch.full((size,), float(name.endswith("deviation"))))
        self.register_buffer("is_flag", torch.zeros(size, dtype=torch.bool))
        self.register_buffer("atoms", torch.zeros(2, ATOMS))
        self.register_buffer("kinds", torch.tensor([[False] * ATOMS + [True]] * 2))
        self.register_buffer("rewards", torch.tensor([[0.0, 1.0, 0.0, 0.0]] * 2))

    @torch.no_grad()
    def measure(self, observation: FloatArray, after: FloatArray, reward: FloatArray, end: BoolArray) -> None:
        """Measure all statistics on transitions [batch, ...]."""
        both = np.concatenate([observation, after])
        _fill(self.mean, both.mean(axis=0, dtype=np.float64))
        _fill(self.deviation, _deviation(both))
        change = after.astype(np.float64) - observation
        _fill(self.change_mean, change.mean(axis=0))
        _fill(self.change_deviation, _deviation(change))
        low, high = both.min(axis=0), both.max(axis=0)
        _fill(self.low, low)
        _fill(self.high, high)
        _fill(self.is_flag, ((both == low) | (both == high)).all(axis=0))
        for branch, rows in ((RUNNING, ~end), (ENDING, end)):
            self._measure_rewards(branch, reward[rows])

    def _measure_rewards(self, branch: int, reward: FloatArray) -> None:
        values, counts = np.unique(reward, return_counts=True)
        often = np.argsort(-counts, kind="stable")[:ATOMS]
        often = often[counts[often] >= max(2, RECURRENT * len(reward))]
        _fill(self.kinds[branch], np.append(np.arange(ATOMS) < len(often), True))
        self.atoms[branch, : len(often)] = torch.from_numpy(values[often].astype(np.float32))
        rest = reward[~np.isin(reward, values[often])]
        rest = rest if len(rest) else reward
        if len(rest):
            figures = [rest.mean(dtype=np.float64), _deviation(rest), rest.min(), rest.max()]
            _fill(self.rewards[branch], np.array(figures))

    def inputs(self, observation: Tensor) -> Tensor:
        """[..., observation]: normalised and clipped."""
        return ((observation - self.mean) / self.deviation).clamp(-FARTHEST, FARTHEST)

    def change(self, units: Tensor) -> Tensor:
        """[..., observation]: a normalised change in original units."""
        return self.change_mean + units * self.change_deviation

    def unchange(self, change: Tensor) -> Tensor:
        """[..., observation]: a change, normalised."""
        return (change - self.change_mean) / self.change_deviation

    def settle(self, observation: Tensor, flag: Tensor) -> Tensor:
        """[..., observation]: clipped to the range seen, with binary numbers set to `high` or `low`."""
        flagged = torch.where(flag, self.high, self.low)
        return torch.where(self.is_flag, flagged, observation.clamp(self.low, self.high))

    def kind_of(self, reward: Tensor, end: Tensor) -> tuple[Tensor, Tensor]:
        """[...] both: the kind of each reward (the last if it is no atom), and the normalised reward."""
        branch = end.long()
        same = (reward[..., None] == self.atoms[branch]) & self.kinds[branch][..., :-1]
        mean, deviation = self.rewards[branch, 0], self.rewards[branch, 1]
        number = torch.where(same.any(dim=-1), same.int().argmax(dim=-1), ATOMS)
        return number, (reward - mean) / deviation

    def reward(self, number: Tensor, units: Tensor) -> Tensor:
        """[2, ...]: the atom of each kind; for the last kind, the reward from its normalised value."""
        shape = (2, *(1,) * (units.dim() - 1))
        mean, deviation, low, high = (part.view(shape) for part in self.rewards.unbind(dim=1))
        other = torch.minimum(torch.maximum(mean + units * deviation, low), high)
        atoms = torch.stack([self.atoms[branch][number[branch].clamp(max=ATOMS - 1)] for branch in range(2)])
        return torch.where(number == ATOMS, other, atoms)

    def unseen(self, observation: Tensor) -> Tensor:
        """[row]: whether an observation is outside the range seen by more than the width of the range."""
        width = self.high - self.low
        return ((observation < self.low - width) | (observation > self.high + width)).any(dim=-1)


def _deviation(values: Array) -> FloatArray:
    """Standard deviation along the first axis; 1 where values are constant."""
    found = np.asarray(values.std(axis=0, dtype=np.float64))
    return np.asarray(np.where(found > 1e-8, found, 1.0))


def _fill(buffer: Tensor, values: Array) -> None:
    buffer.copy_(torch.from_numpy(np.asarray(values)))
