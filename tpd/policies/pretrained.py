"""Policy sources whose policy is already trained."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tpd.core.types import MetricsCallback, Policy, State, TransitionsHandler, no_metrics


class ExpectedReturn(NamedTuple):
    """The mean undiscounted return that a policy should reach, and the source of that number."""

    mean: float
    source: str


class Pretrained:
    """A policy source with nothing to train, and so without transitions."""

    steps = 0
    stages = 1
    expected_return: ExpectedReturn | None = None
    """The return that its policy should reach, if known."""

    def train(
        self,
        callbacks: Iterable[TransitionsHandler] = (),
        info_keys: Sequence[str] = (),
        on_metrics: MetricsCallback = no_metrics,
        stage: int | None = None,
    ) -> None:
        """Do nothing."""

    def state(self) -> State:
        """Empty: nothing changes."""
        return {}

    def restore(self, state: State) -> None:
        """Do nothing."""


class GivenPolicy(Pretrained):
    """A policy source that returns the given policy object."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
