"""The skill of rollouts: 1 if they agree with each other, 0 if they know no more than the base rate."""

import numpy as np
import pytest
from rollout_skill import skill_of_rollouts


def test_rollouts_that_agree_are_exact() -> None:
    assert skill_of_rollouts([np.zeros((1, 2)), np.ones((5, 2))]) == pytest.approx(1)


def test_rollouts_that_depend_on_nothing_have_no_skill() -> None:
    rng = np.random.default_rng(0)
    found = skill_of_rollouts([rng.integers(0, 2, (20, 3)).astype(float) for _ in range(400)])
    assert found == pytest.approx(-0.05, abs=0.02)  # 19 others know less than the base rate


def test_it_is_the_score_of_each_rollout_by_the_others() -> None:
    rng = np.random.default_rng(1)
    samples = [rng.normal(centre, 1, (6, 1)) for centre in (0, 1, 5)]
    errors = [(np.delete(one, k, axis=0).mean() - one[k]) ** 2 for one in samples for k in range(6)]
    expected = 1 - np.mean(errors) / np.concatenate(samples).var()
    assert skill_of_rollouts(samples) == pytest.approx(expected)


def test_an_outcome_that_never_varies_has_no_skill() -> None:
    assert np.isnan(skill_of_rollouts([np.ones((3, 1)), np.ones((2, 1))])).all()
