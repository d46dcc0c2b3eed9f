"""The FHGVF decomposition: equal to the paper's linear system, and the inverse of composition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from tpd.core.efo import compose, decompose


@given(st.floats(0.5, 1.0), arrays(np.float64, st.integers(1, 12), elements=st.floats(-1, 1)))
def test_equals_the_linear_system_of_the_paper(discount: float, outcomes: np.ndarray) -> None:
    horizon = len(outcomes)
    system = np.tril(np.broadcast_to(discount ** np.arange(horizon), (horizon, horizon)))
    values = system @ outcomes
    np.testing.assert_allclose(decompose(values, discount), np.linalg.solve(system, values), atol=1e-9)
    np.testing.assert_allclose(decompose(values, discount), outcomes, atol=1e-9)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("discount", [0.6, 0.99, 1.0])
def test_compose_inverts_decompose_along_any_axis(axis: int, discount: float) -> None:
    values = np.random.default_rng(0).normal(size=(5, 6, 7))
    np.testing.assert_allclose(compose(decompose(values, discount, axis), discount, axis), values)


@pytest.mark.parametrize("discount", [0.0, -0.5, 1.01, float("nan")])
def test_discount_outside_is_refused(discount: float) -> None:
    with pytest.raises(ValueError, match="discount"):
        decompose(np.ones(3), discount)


def test_refused_where_the_digits_run_out() -> None:
    values = np.ones(30, dtype=np.float32)
    with pytest.raises(ValueError, match="form=efo"):
        decompose(values, 0.5)
    decompose(values.astype(np.float64), 0.5)
    decompose(values, 0.9)
