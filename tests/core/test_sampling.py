"""Stratified samples: rare strata are sampled more often, and weighted means stay unbiased."""

import numpy as np
import pytest

from tpd.core.sampling import stratified


def test_half_of_a_sample_is_uniform_and_the_other_half_has_all_strata_equally() -> None:
    rng = np.random.default_rng(0)
    strata = rng.permutation(np.repeat([0, 1, 2], [900, 85, 15]))[:, None]
    chosen, weights = stratified(strata, 120)
    assert len(set(chosen)) == 120
    assert (np.diff(chosen) > 0).all()
    found = np.bincount(strata[chosen, 0])
    assert np.abs(found - [54 + 22.5, 5.1 + 22.5, 15]).max() < 5  # the third has no more
    assert np.bincount(strata[chosen, 0], weights) / weights.sum() == pytest.approx(
        [0.9, 0.085, 0.015], abs=0.02
    )


def test_with_fewer_rows_than_asked_for_all_are_taken() -> None:
    chosen, weights = stratified(np.array([[0], [0], [1]]), 10)
    assert chosen.tolist() == [0, 1, 2]
    assert weights.tolist() == [1, 1, 1]


def test_without_strata_rows_are_evenly_spaced() -> None:
    chosen, weights = stratified(np.zeros((100, 1), dtype=int), 10)
    assert set(np.diff(chosen)) <= {9, 10, 11}
    np.testing.assert_allclose(weights, 1)


def test_a_weighted_mean_over_a_stratified_sample_is_unbiased() -> None:
    rng = np.random.default_rng(0)
    means, plain, true = [], [], []
    for _ in range(400):
        strata = (rng.random((2000, 2)) < [0.03, 0.3]).astype(int)
        values = 5.0 * strata[:, 0] - strata[:, 1] + rng.normal(size=2000)
        chosen, weights = stratified(strata, 100)
        means.append(np.average(values[chosen], weights=weights))
        plain.append(values[chosen].mean())
        true.append(values.mean())
    assert np.mean(means) == pytest.approx(np.mean(true), abs=0.04)
    assert np.mean(plain) > np.mean(true) + 0.5
