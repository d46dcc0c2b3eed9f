"""Policy sources that come with their policy."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from tpd.core.types import MetricsCallback, State, TransitionsHandler, no_metrics


class ExpectedReturn(NamedTuple):
    """The mean undiscounted return that a policy is said to reach, and who says so."""

    mean: float
    source: str


class Pretrained:
    """A source with nothing to train, and so no transitions to show."""

    steps = 0
    stages = 1
    expected_return: ExpectedReturn | None = None
    """What its policy should reach, where that is known."""

    def train(
        self,
        callbacks: Iterable[TransitionsHandler] = (),
        info_keys: Sequence[str] = (),
        on_metrics: MetricsCallback = no_metrics,
        stage: int | None = None,
    ) -> None:
        """There is nothing to do."""

    def state(self) -> State:
        """It never changes."""
        return {}

    def restore(self, state: State) -> None:
        """There is nothing to put back."""
