"""The first line of every result: what was played here, what was expected, and when that is alarming."""

import numpy as np
import pytest

from tpd.core.types import Episodes, Transitions
from tpd.evaluation.played_return import PlayedReturn, episode_returns
from tpd.policies.pretrained import ExpectedReturn

ZIP = "evaluations.npz beside the zip"


def played(mean: float, expected: float | None, spread: float = 1.0, episodes: int = 100) -> PlayedReturn:
    returns = mean + spread * np.resize([-1.0, 1.0], episodes)
    return PlayedReturn.of(returns, None if expected is None else ExpectedReturn(expected, ZIP))


def test_the_line_has_both_returns_and_where_the_expected_one_is_from() -> None:
    assert played(244, 250).line == (
        "mean return in this environment: 244 ± 0.101 (standard error) over 100 episodes; "
        f"expected: 250 ({ZIP})"
    )
    assert played(244, None).line.endswith("; no expected return is known")
    assert "±" not in PlayedReturn.of(np.array([3.0]), None).line
    assert played(244, 250).metrics() == {"return/played": 244, "return/expected": 250}


@pytest.mark.parametrize(
    ("mean", "expected", "spread", "warned"),
    [
        (190, 200, 1.0, False),  # a little less
        (100, 200, 1.0, True),
        (100, 200, 400.0, False),  # within the noise of 100 episodes
        (-200, -80, 1.0, True),
        (-81, -80, 0.1, False),
        (300, 200, 1.0, False),
        (50, None, 1.0, False),
    ],
)
def test_only_a_large_shortfall_is_a_warning(
    mean: float, expected: float | None, spread: float, warned: bool
) -> None:
    warning = played(mean, expected, spread).warning
    assert bool(warning) == warned
    assert not warned or "VecNormalize" in warning


def test_returns_are_sums_of_whole_episodes() -> None:
    reward, no = np.array([1.0, 2.0, 4.0, 8.0]), np.zeros(4, dtype=bool)
    steps = Transitions(np.arange(4), np.zeros(4, int), np.arange(4), reward, no, no)
    assert episode_returns(Episodes(steps, np.array([0, 3]))).tolist() == [7, 8]
