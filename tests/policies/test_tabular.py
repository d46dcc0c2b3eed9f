"""Tables of action probabilities."""

import numpy as np
import pytest

from tpd.policies.tabular import TabularPolicy


@pytest.mark.parametrize("wrong", [[-0.5, 1.5], [0.5, 0.4], [np.nan, 1.0]])
def test_an_error_names_the_state_whose_probabilities_are_wrong(wrong: list[float]) -> None:
    TabularPolicy(np.array([[1.0, 0.0], [0.5, 0.5]]), 0.9)
    almost = [0.5, 0.5 + 1e-12]
    with pytest.raises(ValueError, match="the action probabilities in state 2 must be"):
        TabularPolicy(np.array([[1.0, 0.0], almost, wrong]), 0.9)
