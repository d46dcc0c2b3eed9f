"""Methods that predict returns over an infinite horizon: answers show their own quantity, and no other."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from tests.support import small_mdp
from tests.support.learning import batches
from tpd.answers import what_if
from tpd.answers.sentences.compare import ContrastNarrator
from tpd.answers.sentences.learned import learned_instead
from tpd.answers.sentences.overtakes import overtakes
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.types import concatenate
from tpd.core.verdicts import Verdict
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.rivals.belief_map import BeliefMap
from tpd.predictors.rivals.outcome_gvfs import OutcomeGVFs
from tpd.predictors.rivals.reward_decomposition import RewardDecomposition
from tpd.predictors.rivals.temporal_reward import TemporalReward
from tpd.show import endless_tables
from tpd.show.drawings import contrast as drawn

HORIZON = 12
TERMS = [RewardDecomposition, OutcomeGVFs, BeliefMap]


def explained(kind: type[ReplayedFHTD]) -> tuple[Contrast, ReplayedFHTD]:
    """Two actions in the first state."""
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    rival = kind(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    rival.update(concatenate(list(batches(policy, 20_000))))
    both = Explainer(rival, policy, outcomes.legend).explain(np.zeros(2, dtype=np.int64), np.arange(2))
    return both[:1] - both[1:], rival


def exact() -> Contrast:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    true = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=150)
    both = Explainer(true, policy, outcomes.legend).explain(np.zeros(2, dtype=np.int64), np.arange(2))
    return both[:1] - both[1:]


def cells(table: Any) -> dict[str, list[str]]:
    """By the first cell of each row, the others."""
    columns = [list(column.cells) for column in table.columns]
    return {row[0]: row[1:] for row in map(list, zip(*columns, strict=True))}


def text(table: Any) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(table)
    return captured.get()


@pytest.mark.parametrize("kind", TERMS)
def test_the_terms_of_the_return_are_told_and_are_right(kind: type[ReplayedFHTD]) -> None:
    contrast, _ = explained(kind)
    true = exact()
    said = ContrastNarrator(contrast).paragraph(0, "a", "b")
    rows = cells(endless_tables.comparison(contrast, "a", "b"))
    names = contrast.fact.legend.names
    for side, told in zip((true.fact, true.foil), (0, 1), strict=True):
        for name in contrast.fact.component_names:
            k = names.index(name)
            total = side.discounts @ side.expected[0, :, k]
            assert float(rows[name][told]) == pytest.approx(total, abs=0.1)
    assert rows["return, infinite horizon"][0] == f"{contrast.fact.expected_return[0, -1]:.2f}"
    assert "over an infinite horizon" in said
    assert "but not when" in said
    assert "not learned" not in said + text(endless_tables.comparison(contrast, "a", "b"))
    assert " at step" not in said
    for k, name in enumerate(contrast.fact.component_names):
        assert (name in said) == (abs(contrast.fact.component_returns[0, -1, k]) > 0.01)


def test_rewards_by_step_are_told_and_sum_to_the_return() -> None:
    contrast, _ = explained(TemporalReward)
    rows = cells(endless_tables.comparison(contrast, "a", "b"))
    parts = [cell for name, cell in rows.items() if name.startswith("reward ")]
    whole = rows["return, infinite horizon"]
    for side in range(2):
        assert sum(float(cell[side]) for cell in parts) == pytest.approx(float(whole[side]), abs=0.04)
    said = ContrastNarrator(contrast).paragraph(0, "a", "b")
    assert "mostly from step" in said
    assert "but not which outcomes it comes from" in said
    assert "not learned" not in said


def test_rewards_of_steps_that_are_not_learned_are_not_told() -> None:
    contrast, _ = explained(TemporalReward)
    verdicts = contrast.fact.verdicts
    assert verdicts is not None
    returns = verdicts.returns.copy()
    returns[:, 3] = Verdict.NOT_LEARNED
    judged = replace(contrast.fact, verdicts=replace(verdicts, returns=returns)) - contrast.foil
    said = ContrastNarrator(judged).paragraph(0, "a", "b")
    assert "it is not learned at every step when the reward is expected" in said
    assert "no outcome adds to it" not in said
    rows = cells(endless_tables.comparison(judged, "a", "b"))
    assert [cell[0] for name, cell in rows.items() if name.startswith("reward ")].count("not learned") == 1
    whole, bars = drawn(contrast).axes, drawn(judged).axes
    heights = [[bar.get_extents().height for bar in axes[0].patches] for axes in (whole, bars)]
    assert np.isnan(heights[1][3])
    assert heights[0][:3] == heights[1][:3]


@pytest.mark.parametrize("kind", [*TERMS, TemporalReward])
def test_the_picture_has_its_quantity_and_no_empty_panel(kind: type[ReplayedFHTD]) -> None:
    contrast, _ = explained(kind)
    figure = drawn(contrast)
    panels = [axes for axes in figure.axes if axes.axison]
    assert len(panels) == 3  # fact, foil, difference
    whole, bars = contrast.fact.expected_return[0, -1], [bar.get_extents() for bar in panels[0].patches]
    bars = [box.transformed(panels[0].transData.inverted()) for box in bars]
    if kind is TemporalReward:
        assert sum(box.y0 + box.y1 for box in bars) == pytest.approx(whole)  # one end is 0
        assert len(bars) == HORIZON
    else:
        assert bars[-1].x0 + bars[-1].x1 == pytest.approx(whole)
        assert len(bars) == len(contrast.fact.component_names) + 1


@pytest.mark.parametrize("kind", [RewardDecomposition, TemporalReward])
def test_returns_over_an_infinite_horizon_are_not_compared_with_rollouts(kind: type[ReplayedFHTD]) -> None:
    contrast, _ = explained(kind)
    sample = np.zeros((20, *contrast.fact.expected.shape))
    rolled_out: Explanation = replace(contrast.fact, rollouts=sample, expected=sample[0], verdicts=None)
    assert "is over an infinite horizon" in learned_instead(rolled_out, contrast.fact, "a")


def test_pairs_of_a_table_are_counted_not_transitions() -> None:
    contrast, _ = explained(RewardDecomposition)
    assert "visits of the two state-action pairs" in str(
        endless_tables.comparison(contrast, "a", "b").caption
    )


def test_other_rewards_change_returns_only_where_their_terms_are_predicted() -> None:
    contrast, _ = explained(RewardDecomposition)
    name = contrast.fact.component_names[0]
    k = contrast.fact.legend.names.index(name)
    total = contrast.fact.discounts @ contrast.fact.expected[0, :, k]
    changed = what_if.returns(contrast.fact, {name: contrast.fact.legend.rewards[k] + 2})
    np.testing.assert_allclose(changed, contrast.fact.expected_return[:, -1] + 2 * total)
    contrast, _ = explained(TemporalReward)
    assert np.isnan(what_if.returns(contrast.fact, {name: 2})).all()
    assert np.isfinite(what_if.returns(contrast.fact, {})).all()


def test_an_unknown_return_is_not_told() -> None:
    contrast, _ = explained(RewardDecomposition)
    unknown = replace(contrast.fact, unknown=np.full_like(contrast.fact.unknown, 0.94))
    said = ContrastNarrator(unknown - contrast.foil).paragraph(0, "a", "b")
    assert "A: its return over an infinite horizon is unknown" in said
    assert "discounted probability of reaching an untried state-action pair after a is 94 %" in said
    assert f"{contrast.fact.expected_return[0, -1]:.2f}" not in said


@pytest.mark.parametrize("other", [TemporalReward, ReplayedFHTD])
def test_different_quantities_are_not_compared(other: type[ReplayedFHTD]) -> None:
    one, another = explained(RewardDecomposition)[0], explained(other)[0]
    with pytest.raises(ValueError, match="methods that predict different quantities"):
        _ = one.fact - another.fact


def test_a_reward_that_cannot_be_changed_is_not_told() -> None:
    contrast, _ = explained(TemporalReward)
    said = overtakes(contrast, 0, contrast.fact.component_names[0], "a", "b")
    assert "is not predicted by this method" in said
    contrast, _ = explained(RewardDecomposition)
    assert "overtake" in overtakes(contrast, 0, contrast.fact.component_names[0], "a", "b")
