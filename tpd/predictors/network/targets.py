"""What a network that predicts outcomes is taught, and how far it is from that."""

import torch
from torch import Tensor
from torch.nn import functional

from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.replay_buffer import Experience


def observed(network: OutcomeNetwork, batch: Experience) -> tuple[Tensor, Tensor]:
    """[batch, channel]: the outcomes, and whether each goes on, in the network's order."""
    columns = network.columns
    outcome = torch.from_numpy(batch.outcome)
    continuation = torch.from_numpy(batch.continuation)
    partition, events, real = (list(c) for c in (columns.partition, columns.events, columns.real))
    end = partition[:1]  # the partition goes on exactly as long as the episode
    now = [
        outcome[:, partition],
        torch.zeros(len(batch), len(end)),
        outcome[:, events],
        outcome[:, real] / network.scale,
    ]
    return torch.cat(now, dim=1), continuation[:, [*partition, *end, *events, *real]]


def targets(network: OutcomeNetwork, batch: Experience, after: Tensor, discount: float | None) -> Tensor:
    """[batch, ..., horizon, channel]: the outcome now, then what is expected after the next action.

    after: [batch, ..., horizon, channel].
    discount: of the value functions that the network holds; None if it holds outcomes.
    """
    between = (1,) * (after.dim() - 2)
    now, goes_on = (part.view(len(batch), *between, -1) for part in observed(network, batch))
    after = after * goes_on
    if discount is not None:
        after = now + discount * after
    elif network.columns.partition:
        end = len(network.columns.partition)
        after[..., end] += 1 - goes_on[..., end]
    return torch.cat([now.expand_as(after[..., :1, :]), after[..., :-1, :]], dim=-2)


def losses(network: OutcomeNetwork, outputs: Tensor, target: Tensor) -> Tensor:
    """[..., horizon]: cross-entropy for events, squares for the rest, summed over outcomes."""
    partition, events, real = network.split(outputs)
    true_partition, true_events, true_real = network.split(target)
    categorical = -(true_partition * partition.log_softmax(dim=-1)).sum(dim=-1)
    binary = functional.binary_cross_entropy_with_logits(events, true_events, reduction="none")
    squares = functional.mse_loss(real, true_real, reduction="none")
    total: Tensor = categorical + binary.sum(dim=-1) + squares.sum(dim=-1) / 2
    return total


def least_losses(network: OutcomeNetwork, target: Tensor) -> Tensor:
    """[..., horizon]: the losses of predicting the targets themselves."""
    partition, events, _ = network.split(target)
    categorical: Tensor = torch.special.entr(partition)
    binary: Tensor = torch.special.entr(events) + torch.special.entr(1 - events)
    return categorical.sum(dim=-1) + binary.sum(dim=-1)
