"""Where the simulator settles what forecasts leave open, that is said, and nowhere else."""

import numpy as np

from tpd.evaluation.examiner import hidden_information

CERTAIN = np.full(40, np.inf)


def test_settled_by_the_simulator_and_open_in_the_forecast() -> None:
    truth = np.arange(40)[:, None] % 2 * 1.0
    said = hidden_information(["first crash"], truth, CERTAIN, np.full((40, 1), 0.5))
    assert "'first crash' happens" in said
    assert "variance 0.000 over 40 moments" in said
    assert "(0.250)" in said


def test_nothing_is_said_where_both_know_it_or_neither_does() -> None:
    truth = np.arange(40)[:, None] % 2 * 1.0
    assert hidden_information(["a"], truth, CERTAIN, truth) == ""
    even = np.full((40, 1), 0.5)
    assert hidden_information(["a"], even, np.full(40, 30.0), even) == ""
    assert hidden_information(["a"], truth[:5], CERTAIN[:5], even[:5]) == ""
    assert hidden_information([], truth[:, :0], CERTAIN, even[:, :0]) == ""


def test_few_rollouts_that_agree_by_chance_do_not_settle_it() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.binomial(2, 0.5, (2000, 1)) / 2
    assert hidden_information(["a"], drawn, np.full(2000, 2.0), np.full((2000, 1), 0.5)) == ""
