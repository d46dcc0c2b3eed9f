"""Bands hold the truth as often as they promise, and are no wider than the estimates scatter."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.learning import HORIZON, batches, exact
from tests.support.small_mdp import NUM_ACTIONS
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.efo import powers
from tpd.core.explanation import TOLERATED, Explanation
from tpd.core.types import FloatArray, Transitions
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import Edges, PairTable
from tpd.predictors.replayed.dirichlet_prior import WEIGHTS, successors
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.replayed.posterior import CountedTable, Posterior
from tpd.predictors.replayed.returns import return_table
from tpd.store import explainers

POLICY = small_mdp.policy()
STATES, ACTIONS = (index.ravel() for index in np.indices((small_mdp.NUM_STATES, small_mdp.NUM_ACTIONS)))
DATA_SETS, STEPS = 60, 2000


def learned(steps: int, seed: int = 0) -> PairTable:
    learner = ReplayedFHTD(small_mdp.environment(), POLICY, small_mdp.outcomes(), horizon=HORIZON)
    for batch in batches(POLICY, steps, seed):
        learner.update(batch)
    return learner.table()


def explained(table: PairTable, draws: int = ENOUGH_DRAWS) -> Explanation:
    """Every pair with its bands, as they are shown."""
    explainer = Explainer(table, POLICY, small_mdp.outcomes().legend)
    return explainer.explain(STATES, ACTIONS, draws=draws)


def returns(expected: FloatArray) -> FloatArray:
    """[pair]: of outcomes [pair, horizon, outcome], to the horizon."""
    return np.asarray(powers(POLICY.discount, HORIZON) @ (expected @ small_mdp.outcomes().legend.rewards).T)


@pytest.fixture(scope="module")
def tables() -> list[PairTable]:
    return [learned(STEPS, seed) for seed in range(DATA_SETS)]


@pytest.fixture(scope="module")
def truth() -> FloatArray:
    """[pair, horizon, outcome], termination included"""
    return exact(POLICY)[STATES, ACTIONS]


def coverage(tables: list[PairTable], truth: FloatArray) -> float:
    """The share of the uncertain cells, of futures that are known, whose truth lies in the band."""
    truth = truth[:, :, :-1]
    uncertain = (truth > 1e-9) & (truth < 1 - 1e-9)
    held = []
    for table in tables:
        low, high = explained(table).band()
        judged = uncertain & (table.unknown(STATES, ACTIONS) <= TOLERATED)[:, :, None]
        held += ((low <= truth) & (truth <= high))[judged].tolist()
    return float(np.mean(held))


def sure_of_itself(table: PairTable) -> PairTable:
    """As if everything had been seen four times as often."""
    assert table.edges is not None
    return replace(table, edges=replace(table.edges, count=4 * table.edges.count))


def test_bands_hold_the_truth_as_often_as_they_promise(tables: list[PairTable], truth: FloatArray) -> None:
    assert 0.87 < coverage(tables, truth) < 0.93
    assert coverage([sure_of_itself(table) for table in tables], truth) < 0.75


@pytest.mark.parametrize(
    ("steps", "least", "most"), [(150, 0.78, 0.87), (600, 0.86, 0.92), (3000, 0.87, 0.92)]
)
def test_few_visits_in_a_small_world_are_covered_less(
    steps: int, least: float, most: float, truth: FloatArray
) -> None:
    """No action is tried in enough states to learn from others what it does: docs/results/uncertainty.md."""
    covered = coverage([learned(steps, seed) for seed in range(40)], truth)
    print(f"{steps} steps, {steps / len(STATES):.0f} visits to a pair: {covered:.3f} covered")
    assert least < covered < most


def test_bands_are_as_wide_as_the_estimates_scatter(tables: list[PairTable]) -> None:
    estimates = [table.predict(STATES, ACTIONS)[:, :, :-1] for table in tables]
    low, high = np.quantile(estimates, [0.05, 0.95], axis=0, method="normal_unbiased")
    bands = [explained(table).band() for table in tables]
    width = np.mean([band.high - band.low for band in bands])
    assert 0.85 < width / np.mean(high - low) < 1.15


def test_return_contrasts_hold_the_truth_and_rarely_mistake_the_sign(
    tables: list[PairTable], truth: FloatArray
) -> None:
    other = np.flatnonzero(ACTIONS > 0)
    first = STATES[other] * small_mdp.NUM_ACTIONS
    worth = returns(truth[:, :, :-1])
    difference = worth[first] - worth[other]
    held, decided, wrong = list[float](), 0, 0
    for table in tables:
        every = explained(table)
        low, high = (end[:, -1] for end in (every[first] - every[other]).return_band())
        held.append(float(np.mean((low <= difference) & (difference <= high))))
        decided += int(((low > 0) | (high < 0)).sum())
        wrong += int((((low > 0) & (difference < 0)) | ((high < 0) & (difference > 0))).sum())
    assert 0.86 < np.mean(held) < 0.94
    assert decided > 100
    assert wrong / decided <= 0.03


def test_bands_shrink_with_the_square_root_of_the_data() -> None:
    few, many = (explained(learned(steps)).band() for steps in (2_000, 200_000))
    assert np.mean(many.high - many.low) / np.mean(few.high - few.low) == pytest.approx(0.1, rel=0.2)


def test_the_estimate_lies_in_its_band() -> None:
    every = explained(learned(300))
    known = every.foreseen
    for band, estimate in (
        (every.band(0.1), every.expected),
        (every.sum_band(0.1), np.cumsum(every.expected, axis=1)),
        (every.return_band(0.1), every.expected_return),
    ):
        assert (band.low[known] <= estimate[known]).all()
        assert (estimate[known] <= band.high[known]).all()


def test_a_higher_level_gives_a_wider_band() -> None:
    narrow, wide = (explained(learned(500)).band(level) for level in (0.5, 0.95))
    assert np.nanmean(wide.high - wide.low) > 2 * np.nanmean(narrow.high - narrow.low)


def test_contrasts_are_drawn_jointly() -> None:
    """Both pairs live in one model, so what they share cancels out."""
    both = explained(learned(500))[:2]
    same = (both[:1] - both[:1]).band()
    assert not same.low.any()
    assert not same.high.any()
    joint, each = (both[:1] - both[1:]).band(), both.band()
    apart = (each.high[0] - each.low[1]) - (each.low[0] - each.high[1])
    assert (joint.high - joint.low).mean() < 0.9 * apart.mean()


def drawn_returns(table: PairTable) -> FloatArray:
    """[draw, pair]"""
    return np.stack([returns(expected[:, :, :-1]) for expected in Posterior(table, POLICY).draws(59)])


def test_other_data_are_drawn_apart_and_the_same_data_together(tables: list[PairTable]) -> None:
    drawn = np.stack([drawn_returns(table) for table in tables[:12]])
    drawn -= drawn.mean(axis=1, keepdims=True)
    drawn /= drawn.std(axis=1, keepdims=True)
    assert abs(np.mean(drawn[:-1] * drawn[1:])) < 0.06  # 0.19 where all have one seed
    edges = tables[0].edges
    assert edges is not None
    turned = Edges(*(getattr(edges, field.name)[::-1] for field in fields(Edges)))
    np.testing.assert_array_equal(drawn_returns(replace(tables[0], edges=turned)), drawn_returns(tables[0]))


def test_a_pair_never_tried_has_no_band() -> None:
    table = learned(500)
    tried = table.pairs != table.pairs[-1]
    assert table.edges is not None
    kept = table.edges.pair != table.pairs[-1]
    left = Edges(*(getattr(table.edges, field.name)[kept] for field in fields(Edges)))
    less = CountedTable(
        table.num_actions, table.pairs[tried], table.expected[tried], table.visits[tried], None, left
    )
    every = explained(less)
    band = every.band()
    assert np.isnan(band.low[-1]).all()
    assert np.isnan(band.high[-1]).all()
    assert not np.isnan(band.low[:-1]).any()
    assert np.isnan((every[:1] - every[-1:]).band().low).all()


def test_a_stored_table_gives_the_same_bands(tmp_path: Path) -> None:
    learner = ReplayedFHTD(small_mdp.environment(), POLICY, small_mdp.outcomes(), horizon=HORIZON)
    for batch in batches(POLICY, 500):
        learner.update(batch)
    explainers.save(
        Explainer(learner, POLICY, small_mdp.outcomes().legend), small_mdp.environment(), tmp_path
    )
    stored = explainers.load(tmp_path).predictor
    assert isinstance(stored, PairTable)
    bands = [explained(table).band() for table in (learner.table(), stored)]
    np.testing.assert_allclose(bands[0], bands[1], atol=1e-6)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="need counts"):
        Posterior(replace(learned(500), edges=None), POLICY)
    with pytest.raises(ValueError, match="level"):
        explained(learned(500)).band(level=1.1)
    with pytest.raises(ValueError, match="too few"):
        explained(learned(500), draws=5).band()


@pytest.mark.parametrize(
    ("states", "actions", "named"),
    [
        ([1], [NUM_ACTIONS], "actions must be numbered from 0 to 2, got 3"),
        ([1], [-1], "actions must be numbered from 0 to 2, got -1"),
        ([-1], [0], "observations must be numbered from 0 on, got -1"),
        ([0.5], [0], "observations must be a batch of whole numbers, got float64"),
        (1, 0, "observations must be a batch of whole numbers, got int64 of shape"),
        ([1, 2], [0], r"observations of shape \(2,\) but actions of shape \(1,\)"),
    ],
)
def test_pairs_that_do_not_exist_are_refused(states: Any, actions: Any, named: str) -> None:
    table = learned(500)
    worth = return_table(table, POLICY, small_mdp.outcomes().legend, horizon=2)
    with pytest.raises(ValueError, match=named):
        worth.returns(states, actions)


# What is expected although it was not seen


def corridor(steps: list[tuple[int, int, int, bool, int]]) -> PairTable:
    """A table of transitions (state, action, next state, terminated, times)."""
    learner = ReplayedFHTD(small_mdp.environment(), POLICY, small_mdp.outcomes(), horizon=HORIZON)
    state, action, next_state, terminated = (
        np.repeat([step[column] for step in steps], [step[-1] for step in steps]) for column in range(4)
    )
    learner.update(
        Transitions(state, action, next_state, next_state % 2 * 1.0, terminated, np.zeros(len(state), bool))
    )
    return learner.table()


def expected_of(table: PairTable, state: int, action: int) -> dict[tuple[int, bool, bool], float]:
    """How much each (next state, odd, terminated) counts for after a pair."""
    found = successors(table)
    here = table.pairs[found.row] == state * table.num_actions + action
    odd, ended = found.outcome[here, 0] == 1, found.outcome[here, -1] == 1
    led = zip(found.next_state[here].tolist(), odd.tolist(), ended.tolist(), strict=True)
    return dict(zip(led, found.amount[here].tolist(), strict=True))


ON_OR_NOT = [(s, 0, s + moved, False, 90 if moved else 10) for s in (0, 1, 2, 3) for moved in (0, 1)]
"""Action 0 leads one state on, or now and then not."""


def test_what_an_action_did_elsewhere_is_expected_where_it_was_rarely_tried() -> None:
    expected = expected_of(corridor([*ON_OR_NOT, (4, 0, 5, False, 1)]), 4, 0)
    assert set(expected) == {(5, True, False), (4, False, False)}
    assert sum(expected.values()) == pytest.approx(1 + WEIGHTS[-1])
    assert 0 < expected[4, False, False] < 0.2 * WEIGHTS[-1]


def test_whether_an_episode_ends_is_read_from_the_arrivals() -> None:
    """Who arrives in 5 is at the end, whichever way it was."""
    arrived = [(2, 1, 5, True, 40), (1, 0, 2, True, 1)]
    expected = expected_of(corridor([*ON_OR_NOT, *arrived, (4, 0, 4, False, 1)]), 4, 0)
    assert {ended for state, _, ended in expected if state == 5} == {True}
    assert sum(amount for (state, *_), amount in expected.items() if state == 4) >= 1


def test_a_kind_of_arrival_that_is_rare_elsewhere_does_not_make_the_arrival_rare() -> None:
    """Nearly all that arrive elsewhere go on, but going on to 4 is as likely as to any other state."""
    goal = [(1, 0, 2, True, 1), (2, 1, 4, True, 40)]
    expected = expected_of(corridor([*ON_OR_NOT[:6], *goal, (3, 0, 3, False, 1)]), 3, 0)
    assert set(expected) == {(4, False, True), (3, True, False)}
    assert expected[4, False, True] == pytest.approx(WEIGHTS[-1] * 0.9 * 3 / (3 + 1), rel=0.1)


def test_a_field_of_the_state_as_an_outcome_has_the_value_of_the_arrival() -> None:
    """One action leads on or not, in 50 states; the outcome is one of 25 values, by the state arrived in."""
    state, moved = (index.ravel() for index in np.indices((50, 2)))
    arrival, counts = state + moved, np.where(moved, 18, 2)
    counts[[60, 61]] = 0, 1  # nothing but one step on was seen of state 30
    seen = counts > 0
    outcome = np.stack([arrival % 25, np.zeros(100)], axis=1)
    edges = Edges(state[seen], arrival[seen], outcome[seen], np.ones((99, 2)), counts[seen])
    visits = np.bincount(state, counts).astype(np.float64)
    found = successors(PairTable(1, np.arange(50), np.zeros((50, 1, 2)), visits, None, edges))
    np.testing.assert_array_equal(found.outcome[:, 0], found.next_state % 25)
    assert set(found.next_state[found.row == 30].tolist()) == {30, 31}


def test_an_action_that_never_varies_within_a_state_is_taken_at_its_word() -> None:
    fixed = [(0, 0, 0, False, 50), (1, 0, 3, False, 50), (2, 0, 2, False, 50), (3, 0, 5, False, 1)]
    expected = expected_of(corridor(fixed), 3, 0)
    assert expected.pop((5, True, False)) >= 1
    assert 0 < sum(expected.values()) <= WEIGHTS[0]
