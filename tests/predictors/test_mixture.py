"""A mixture takes each outcome from whoever predicts it better, and agrees with itself."""

import logging
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.predictors.test_model import ENV, HORIZON, PAIRS, POLICY, model, outcomes, transitions
from tests.support.networks import network
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import FittingLearner, FloatArray, Learner, Resumable
from tpd.predictors.explainer import Explainer
from tpd.predictors.mixture.learner import MixtureLearner, network_and_model
from tpd.predictors.mixture.weights import Windows, fitted_weights, groups, mixed
from tpd.predictors.network.learner import NetworkFHTD
from tpd.store import explainers

NAMES = ("push", "crash", "first crash", "first touch", "speed")
RNG = np.random.default_rng(0)
SEEN = (RNG.random((500, 4, 6)) < 0.3).astype(np.float32)


def windows(known: int = 4) -> Windows:
    weight = np.tile(np.arange(SEEN.shape[1]) < known, (500, 1)).astype(float)
    return Windows(np.zeros((500, 1)), np.zeros(500), SEEN, weight)


def weights(one: FloatArray, other: FloatArray, known: int = 4) -> FloatArray:
    return fitted_weights(windows(known), one, other, NAMES, groups(NAMES, [1, 2]))


# The weights


def test_an_event_shares_its_weight_with_its_first_occurrence_and_endings_with_termination() -> None:
    assert groups(NAMES, [1, 2]) == ((1, 2, 5), (0,), (3,), (4,))
    assert groups(NAMES, []) == ((5,), (0,), (1, 2), (3,), (4,))


def test_the_weight_goes_to_the_better_predictor() -> None:
    wrong = np.full(SEEN.shape, 0.3)
    assert (weights(wrong, SEEN) == 1).all()
    assert (weights(SEEN, wrong) == 0).all()
    one, other = (SEEN + RNG.normal(0, 0.2, SEEN.shape) for _ in range(2))
    assert (np.abs(weights(one, other) - 0.5) < 0.1).all()
    mse = [np.square(each - SEEN).mean() for each in (one, other, mixed(one, other, weights(one, other)))]
    assert mse[2] < 0.7 * min(mse[:2])


def test_each_outcome_has_a_weight_of_its_own() -> None:
    one, other = np.full(SEEN.shape, 0.3), np.full(SEEN.shape, 0.3)
    one[..., 0], other[..., 4] = SEEN[..., 0], SEEN[..., 4]
    other[..., 0] = one[..., 4] = 0.8
    found = weights(one, other)
    assert found[0] == 0
    assert found[4] == 1
    assert (found[[1, 2, 3, 5]] == 0).all()  # the same: the first is taken


def test_a_few_lucky_windows_earn_no_weight() -> None:
    """The other prediction is better in three windows of 500, and the same elsewhere."""
    one = np.full(SEEN.shape, 0.3, dtype=np.float32)
    lucky, better = one.copy(), one.copy()
    lucky[:3] = SEEN[:3]
    better[::2] = SEEN[::2]
    assert not weights(one, lucky).any()
    np.testing.assert_allclose(weights(one, better), 1)


def test_what_was_not_observed_does_not_count() -> None:
    one, other = np.full(SEEN.shape, 0.3), SEEN.copy()
    other[:, 2:] = 5
    assert (weights(one, other, known=2) == 1).all()
    assert (weights(one, other) < 1).any()


def in_order() -> FloatArray:
    """[pair, horizon, 2]: probabilities of an event at each step, and of its first occurrence."""
    first = RNG.dirichlet(np.ones(HORIZON + 1), 200)[:, :-1]
    by = np.cumsum(first, axis=1)
    return np.stack([first + RNG.random((200, HORIZON)) * (by - first), first], axis=2)


def test_mixtures_of_what_is_in_order_are_in_order() -> None:
    one, other = (in_order() for _ in range(2))
    for weight in (0.0, 0.3, 1.0):
        at, first = np.moveaxis(mixed(one, other, np.array([weight, weight])), 2, 0)
        assert (first <= at + 1e-12).all()
        assert (at <= np.cumsum(first, axis=1) + 1e-12).all()


# The learner


def mixture(**settings: Any) -> MixtureLearner:
    explained = outcomes()
    alike = {"horizon": HORIZON, "fit_updates": 30, "device": "cpu"}
    one = network(ENV, POLICY, explained, **alike)
    return MixtureLearner(one, model(explained=explained, particles=20, **{"fit_updates": 300} | settings))


@cache
def fitted() -> MixtureLearner:
    learner = mixture()
    learner.update(transitions())
    learner.fit()
    return learner


def test_a_mixture_is_a_learner_that_fits_and_resumes() -> None:
    for contract in (Learner, FittingLearner, Resumable):
        assert isinstance(fitted(), contract)


def test_the_model_of_a_smooth_world_gets_weight_and_helps() -> None:
    """The network made 30 updates only."""
    learner = fitted()
    names = learner.outcomes.legend.names
    assert learner.weights[names.index("place")] > 0.5
    assert learner.weights[names.index("right")] == learner.weights[names.index("first right")] > 0.5
    assert learner.metrics()["mixture/place"] == learner.weights[names.index("place")]
    predicted = learner.predict(*PAIRS)
    between = np.sort([learner.network.predict(*PAIRS), learner.model.predict(*PAIRS)], axis=0)
    assert (predicted >= between[0] - 1e-5).all()
    assert (predicted <= between[1] + 1e-5).all()


def test_windows_with_rare_forecasts_are_chosen_more_often_with_smaller_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tpd.predictors.network.learner.LEVELS", (0.7, 0.8))  # it is nowhere unlikely
    learner = network(ENV, POLICY, outcomes(), horizon=HORIZON, fit_updates=300)
    learner.update(transitions())
    learner.fit()
    every, some = (learner.select_windows(count) for count in (10**6, 200))
    assert len(some) == 200 < len(every)
    column = outcomes().legend.names.index("first right")
    unlikely, chosen = (
        learner.predict(one.observation, one.action)[..., column].sum(axis=1) < 0.7 for one in (every, some)
    )
    assert 0 < unlikely.mean() < 0.2
    assert chosen.mean() > 1.5 * unlikely.mean()
    assert np.average(chosen, weights=some.weight[:, 0]) == pytest.approx(unlikely.mean(), rel=0.2)


def test_before_it_is_fitted_it_is_the_network() -> None:
    learner = mixture()
    learner.update(transitions()[:2000])
    assert (learner.predict(*PAIRS) == learner.network.predict(*PAIRS)).all()


def test_a_fit_that_was_put_down_goes_on_bit_for_bit() -> None:
    whole, first = mixture(fit_updates=20), mixture(fit_updates=20)
    for learner in (whole, first):
        learner.update(transitions()[:5000])
    counted: list[int] = []
    whole.fit(counted.append)
    assert sum(counted) == whole.fit_updates == 51
    for part in (17, 20, 100):
        first.fit(at_most=part)
        resumed = mixture(fit_updates=20)
        resumed.restore(first.state())
        first = resumed
    assert (first.weights == whole.weights).all()
    assert (first.predict(*PAIRS) == whole.predict(*PAIRS)).all()


def test_saved_and_loaded_bit_for_bit(tmp_path: Path) -> None:
    explained, learner = outcomes(), mixture()
    learner.restore(fitted().state())
    explainers.save(Explainer(learner, POLICY, explained.legend), ENV, tmp_path)
    loaded = explainers.load(tmp_path).predictor
    with pytest.raises(ValueError, match="needs the policy of the run"):
        loaded.predict(*PAIRS)
    completed = loaded.completed(POLICY, explained)  # type: ignore[attr-defined]
    assert (completed.predict(*PAIRS) == learner.predict(*PAIRS)).all()


def _model(env: Any, policy: Any, explained: OutcomeSet) -> Any:
    return model(policy, explained)


SETTINGS: dict[str, Any] = {
    "horizon": HORIZON,
    "form": "efo",
    "discount": 1.0,
    "hidden": [8],
    "learning_rate": 0.01,
    "batch_size": 64,
    "target_update_rate": 0.05,
    "updates_per_step": 0.0,
    "fit_updates": 0,
    "replay_size": 1000,
    "seed": 0,
}


def test_where_no_model_is_possible_the_network_explains_alone_and_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    reads = OutcomeSet([event("far", lambda t: t.info["place"] > 1, info_keys=["place"])])
    with caplog.at_level(logging.INFO):
        learner = network_and_model(ENV, POLICY, reads, model=_model, **SETTINGS)
    assert isinstance(learner, NetworkFHTD)
    assert "so only the network predicts: outcome 'far' reads info['place']" in caplog.text
