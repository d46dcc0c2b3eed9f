"""Members of an ensemble: heads on one trunk, each taught by its own resample of what was seen."""

import copy
from collections.abc import Callable

import numpy as np
import torch

from tpd.learners.network import Heads, OutcomeNetwork
from tpd.learners.network_loss import losses, targets
from tpd.learners.network_replay import Replay
from tpd.types import Policy

APART = 3.0  # how far members start from the network, in sizes of a new layer's weights
JOURNEYS = 3  # how often news can travel through all steps ahead while members learn


def train_members(
    network: OutcomeNetwork,
    replay: Replay,
    policy: Policy,
    rng: np.random.Generator,
    *,
    count: int,
    updates: int,
    batch_size: int,
    learning_rate: float,
    discount: float | None,
    progress: Callable[[int], None],
) -> Heads:
    """Heads for `count` members, which start around those of the network and leave it as it is.

    Where they start is random, and shows in the end wherever the data did not overrule it. Every transition
    counts for a member as often as it was drawn when as many were drawn with replacement: Poisson(1). A
    member's targets are what its own lagged copy expects after the next action, so that what it is unsure
    of at one step makes it unsure of the step before.
    """
    weights = rng.poisson(1, (len(replay), count)).astype(np.float32)
    lagged = network.heads.repeated(count)
    size = APART / np.sqrt(lagged.weight.shape[2])
    lagged.weight.add_(torch.from_numpy(rng.uniform(-size, size, lagged.weight.shape)))
    heads = copy.deepcopy(lagged).requires_grad_(True)
    follow_rate = min(1.0, JOURNEYS * network.horizon / updates)
    optimizer = torch.optim.Adam(heads.parameters(), lr=learning_rate, fused=True)
    slower = torch.optim.lr_scheduler.LinearLR(optimizer, 1, 1 / updates, updates)
    for _ in range(updates):
        rows = rng.integers(len(replay), size=batch_size)
        batch, weight = replay[rows], torch.from_numpy(weights[rows])
        next_actions = policy.sample(batch.next_observation, rng)
        with torch.no_grad():
            features = network.features(batch.observation, batch.action)
            next_features = network.features(batch.next_observation, next_actions)
            after = network.channels(network.member_outputs(lagged, next_features, next_actions))
            target = targets(network, batch, after, discount)
        outputs = network.member_outputs(heads, features, batch.action)
        loss = (losses(network, outputs, target).mean(dim=-1) * weight).sum(dim=1).mean()
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        slower.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(lagged.parameters()), list(heads.parameters()), follow_rate)
        progress(1)
    return lagged
