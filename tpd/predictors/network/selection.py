"""Selects the network weights with the lowest loss on held-out episodes during training."""

from collections.abc import Sequence

import numpy as np
from torch import nn

from tpd.core.types import State
from tpd.guards.files import CheckedArrays
from tpd.predictors.network.state import check_weights, prefixed, put_weights, unprefixed, weights

LEAST_LOSS = -1e6
"""Lower bound of a valid loss; infinity means that none was measured yet."""


class Selection:
    """Keeps the best weights of each part of a network."""

    def __init__(self, parts: int) -> None:
        self.losses = np.full(parts, np.inf)
        """[part]: the lowest loss so far"""
        self._best: list[State] = [{} for _ in range(parts)]

    def offer(self, parts: Sequence[nn.Module], losses: Sequence[float]) -> None:
        """Keep the weights of each part whose loss is the lowest so far."""
        for k, (part, loss) in enumerate(zip(parts, losses, strict=True)):
            if loss <= self.losses[k]:
                self.losses[k], self._best[k] = loss, weights(part)

    def put_best(self, parts: Sequence[nn.Module]) -> None:
        """Load the best weights into each part."""
        for part, best in zip(parts, self._best, strict=True):
            if best:
                put_weights(part, best)

    def state(self) -> State:
        """The best weights and losses so far."""
        kept = {n: value for k, best in enumerate(self._best) for n, value in prefixed(str(k), best).items()}
        return {"losses": self.losses, **kept}

    def restore(self, state: State, parts: Sequence[nn.Module]) -> None:
        """Continue from that state; the weights are checked against these parts."""
        self.losses = CheckedArrays(state).like("losses", self.losses, low=LEAST_LOSS, finite=False).copy()
        self._best = [unprefixed(str(k), state) for k in range(len(self.losses))]
        for part, best in zip(parts, self._best, strict=True):
            if best:
                check_weights(part, best)
