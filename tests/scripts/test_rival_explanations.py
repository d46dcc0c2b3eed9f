"""What other methods make of their quantities."""

import numpy as np
import pytest
from rival_explanations import Surrogate, minimal_sufficient


def test_minimal_sufficient_explanations() -> None:
    plus, minus = minimal_sufficient(np.array([5.0, 3.0, 1.0, -4.0, -2.0]))
    assert plus.tolist() == [True, True, False, False, False]  # 5 alone does not outweigh 6
    assert minus.tolist() == [False, False, False, True, True]  # 4 alone does not outweigh 5
    plus, minus = minimal_sufficient(np.array([5.0, 1.0, -1.0]))
    assert plus.tolist() == [True, False, False]
    assert minus.tolist() == [False, False, True]
    with pytest.raises(ValueError, match="not the better one"):
        minimal_sufficient(np.array([1.0, -2.0]))


def test_integrated_gradients_of_the_surrogate_sum_to_the_difference() -> None:
    rng = np.random.default_rng(0)
    gvfs = rng.normal(size=(400, 3)) * [1, 10, 0.1]
    values = gvfs[:, 0] * gvfs[:, 1] + 3 * gvfs[:, 1] - 20 * gvfs[:, 2]
    surrogate = Surrogate.fitted(gvfs, values, rng)
    assert surrogate.r_squared > 0.999
    fact, foil = gvfs[:200], gvfs[200:]
    attributed = surrogate.integrated_gradients(fact, foil)
    difference = surrogate.values(fact) - surrogate.values(foil)
    np.testing.assert_allclose(attributed.sum(axis=1), difference, atol=1e-6)
    np.testing.assert_allclose(difference, values[:200] - values[200:], atol=0.05)
    noise = Surrogate.fitted(gvfs, rng.normal(size=400), rng)
    assert noise.r_squared < 0.1  # what is not explained by the outcomes shows
