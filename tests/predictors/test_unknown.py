"""What was never tried is unknown, also where it is only a later part of the future."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import StepPatch

from tests.support import small_mdp
from tests.support.learning import batches
from tpd.core.explanation import Explanation
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy, FloatArray, Transitions, concatenate
from tpd.evaluation.errors import evaluate
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.step_sizes import constant
from tpd.predictors.tabular import TabularFHTD
from tpd.show import plots
from tpd.show.figure_notes import remarks
from tpd.show.tables import error_table, overall
from tpd.store import explainers
from tpd.store.explanations import load_explanation, save_explanation
from tpd.tracking.served_model import _load_pyfunc

HORIZON = 5
STATES, ACTIONS = np.arange(small_mdp.NUM_STATES), np.arange(small_mdp.NUM_ACTIONS)


def step(state: int, action: int, next_state: int, terminated: bool = False, times: int = 1) -> Transitions:
    """The same transition a number of times."""
    return Transitions(
        observation=np.full(times, state),
        action=np.full(times, action),
        next_observation=np.full(times, next_state),
        reward=np.full(times, float(next_state % 2)),
        terminated=np.full(times, terminated),
        truncated=np.zeros(times, dtype=bool),
    )


def explainer_of(seen: Transitions, policy: DiscretePolicy, horizon: int = HORIZON) -> Explainer:
    outcomes = small_mdp.outcomes()
    learned = ReplayedFHTD(small_mdp.environment(), policy, outcomes, horizon=horizon)
    learned.update(seen)
    return Explainer(learned, policy, outcomes.legend)


def mostly_first(state: int = 1, other: float = 0.25) -> TabularPolicy:
    """Takes action 0, but in one state now and then action 1."""
    probabilities = np.tile([1.0, 0.0, 0.0], (small_mdp.NUM_STATES, 1))
    probabilities[state] = [1 - other, other, 0]
    return TabularPolicy(probabilities, discount=0.9)


@pytest.fixture
def chain() -> Explainer:
    """0 -> 1 -> 2 -> 0, where one time in four it ends after 0; in 1 the policy also does what is untried."""
    seen = [step(0, 0, 1, times=3), step(0, 0, 5, terminated=True), step(1, 0, 2), step(2, 0, 0)]
    return explainer_of(concatenate(seen), mostly_first())


def without(transitions: Transitions, *pairs: tuple[int, int]) -> Transitions:
    for state, action in pairs:
        transitions = transitions[(transitions.observation != state) | (transitions.action != action)]
    return transitions


def sampled(*untried: tuple[int, int]) -> Transitions:
    return without(concatenate(list(batches(small_mdp.policy(), 5_000))), *untried)


def every_pair(explainer: Explainer) -> Explanation:
    states, actions = (index.ravel() for index in np.meshgrid(STATES, ACTIONS, indexing="ij"))
    return explainer.explain(states, actions)


def test_the_unknown_comes_with_the_untried_pair_and_stays(chain: Explainer) -> None:
    """That the state after an ending was never left does not matter."""
    explanation = chain.explain(np.array([0, 1, 2]))
    away = 0.75 * 0.25
    again = 0.75 * (0.25 + 0.75 * away)
    expected = [[0, away, away, away, again], [0, 0, 0, away, away], [0, 0, away, away, away]]
    np.testing.assert_allclose(explanation.unknown, expected)
    np.testing.assert_allclose(explanation.running[0], [0.75, 0.75**2, 0.75**2, 0.75**3, 0.75**4])


def test_nothing_else_is_expected_in_place_of_the_unknown(chain: Explainer) -> None:
    explanation = chain.explain(np.array([0]))
    odd, even, first = explanation.expected[0].T
    went_on = 0.75 * 0.75
    np.testing.assert_allclose(odd, [1, 0, 0, went_on, 0])
    np.testing.assert_allclose(even, [0, went_on, went_on, 0, 0.75 * went_on * 0.75])
    np.testing.assert_allclose(first, [1, 0, 0, 0, 0])


@pytest.mark.parametrize("untried", [[], [(2, 1)], [(0, 0), (3, 2), (5, 1)]])
def test_probability_is_conserved(untried: list[tuple[int, int]]) -> None:
    """At each step an event happens, or the episode has ended before, or nothing is known any more."""
    explanation = every_pair(explainer_of(sampled(*untried), small_mdp.policy()))
    known = explanation[explanation.known]
    happening = known.expected[:, :, :2].sum(axis=2)
    terminated = 1 - known.running - known.unknown
    before = np.pad(terminated[:, :-1], ((0, 0), (1, 0)))
    np.testing.assert_allclose(happening + before + known.unknown, 1, atol=1e-12)
    np.testing.assert_allclose(known.ended, before, atol=1e-12)
    assert (np.diff(known.unknown, axis=1) >= -1e-12).all()
    assert (known.unknown[:, 0] == 0).all()
    assert (known.unknown[:, -1] > 0.01).all() == bool(untried)
    never = explanation[~explanation.known]
    assert len(never) == len(untried)
    assert (never.unknown == 1).all()
    assert not never.running.any()


def test_data_that_is_complete_but_for_a_pair_is_wrong_by_no_more_than_the_bound() -> None:
    """What the pair would have brought lies within the bound around what is explained without it."""
    policy = small_mdp.policy()
    whole = every_pair(explainer_of(sampled(), policy, horizon=300))
    part = every_pair(explainer_of(sampled((2, 1)), policy, horizon=60))
    gap = np.abs(whole.expected_return[:, -1] - part.expected_return[:, -1])[part.known]
    assert (gap <= part.remainder.bound[part.known]).all()
    beyond_the_horizon = 0.9**60 / (1 - 0.9)
    assert (gap > beyond_the_horizon).all()


def test_others_do_not_track_it() -> None:
    policy, outcomes, env = small_mdp.policy(), small_mdp.outcomes(), small_mdp.environment()
    stepwise = TabularFHTD(
        env,
        policy,
        outcomes,
        horizon=HORIZON,
        form="efo",
        discount=1.0,
        step_size=constant(0.5),
        dtype="float64",
    )
    stepwise.update(sampled((2, 1)))
    for predictor in (stepwise, stepwise.table(), ExactSolution(env, policy, outcomes, horizon=HORIZON)):
        assert not every_pair(Explainer(predictor, policy, outcomes.legend)).unknown.any()


# What is made of it


@pytest.fixture
def tempting() -> Explainer:
    """In state 0 the policy's action 0 brings nothing, 1 a reward and the unknown, 2 a reward and the end."""
    seen = [step(0, 0, 0), step(0, 1, 3), step(0, 2, 5, terminated=True)]
    return explainer_of(concatenate(seen), mostly_first())


def test_returns_that_end_in_the_unknown_are_not_trusted(tempting: Explainer) -> None:
    here, own = np.array([0]), np.array([0])
    returns = tempting.action_returns(here)
    np.testing.assert_array_equal(returns, [[0, np.nan, 1]])
    only = [np.array([[True, True, False]]), np.array([[True, True, True]])]
    assert [tempting.favoured(returns, own, valid)[0] for valid in only] == [0, 2]
    assert tempting.favoured(returns, np.array([1]), only[1])[0] == 1  # of itself nothing is known


def test_a_little_unknown_does_not_spoil_a_return() -> None:
    seen = concatenate([step(0, 0, 1), step(1, 0, 0)])
    returns = [
        explainer_of(seen, mostly_first(other=other), horizon=2).action_returns(np.array([0]))[0, 0]
        for other in (0.01, 0.1)
    ]
    np.testing.assert_array_equal(returns, [1, np.nan])


def test_disagreement_is_a_share_of_what_can_be_compared(tempting: Explainer) -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    truth = ExactSolution(env, policy, outcomes, horizon=HORIZON)
    cases = truth.cases(200, generator(0, "test"))
    nothing = ReplayedFHTD(env, policy, outcomes, horizon=HORIZON)
    assert np.isnan(evaluate(Explainer(nothing, policy, outcomes.legend), env, cases).disagreement)
    here = replace(
        cases[:2],
        observations=np.array([0, 0]),
        actions=np.array([0, 1]),
        own=np.array([True, True]),
        weight=np.array([1.0, 7.0]),
    )
    assert evaluate(tempting, env, here).disagreement == 1


def test_a_contrast_is_as_unknown_as_the_less_known_of_its_futures(tempting: Explainer) -> None:
    fact, foil = (tempting.explain(np.array([0]), np.array([action])) for action in (0, 1))
    contrast = fact - foil
    assert contrast.known[0]
    np.testing.assert_array_equal(contrast.unknown, foil.unknown)
    np.testing.assert_array_equal(contrast.foreseen, [[True, False, False, False, False]])
    assert not (fact - tempting.explain(np.array([3]), np.array([0]))).known[0]


def test_the_unknown_is_said(chain: Explainer, tempting: Explainer) -> None:
    said = "; ".join(remarks(chain.explain(np.array([0])), 0))
    assert "0.32 that the episode continues after step 4 and 0.29 that it has reached an untried" in said
    (known,) = remarks(tempting.explain(np.array([0]), np.array([2])), 0)
    assert known == "probability 0.00 that the episode continues after step 4"


def hatched(axes: Axes) -> list[StepPatch]:
    return [a for a in axes.get_children() if isinstance(a, StepPatch) and a.get_hatch() == "////"]


def heights(bars: StepPatch) -> FloatArray:
    top, _, base = bars.get_data()
    return np.abs(top - base)


@pytest.mark.parametrize("draw", [plots.events, plots.outcomes, plots.reward_components])
def test_the_unknown_is_drawn_apart_and_lines_end_there(chain: Explainer, draw: object) -> None:
    assert callable(draw)
    axes = Figure().subplots()
    explanation = chain.explain(np.array([0]))
    draw(axes, explanation, 0)
    (band,) = hatched(axes)
    np.testing.assert_allclose(heights(band), explanation.unknown[0])
    for line in axes.lines:
        drawn = np.asarray(line.get_ydata(), dtype=float)
        if len(drawn) == HORIZON:
            np.testing.assert_array_equal(np.isfinite(drawn), [True, False, False, False, False])


def test_the_bars_of_a_step_add_up_to_one_with_the_unknown(chain: Explainer) -> None:
    axes = Figure().subplots()
    explanation = chain.explain(np.array([0]))
    plots.events(axes, explanation, 0)
    (band,) = hatched(axes)
    levels = np.arange(0.0005, 1, 0.001)
    for h in range(HORIZON):
        points = np.column_stack([np.full(len(levels), h), levels])
        bars = [layer.get_paths()[0].contains_points(points).mean() for layer in axes.collections]
        assert sum(bars) + heights(band)[h] == pytest.approx(1, abs=0.005)


def test_what_is_known_has_no_hatches(tempting: Explainer) -> None:
    figure = Figure()
    axes = figure.subplots()
    explanation = tempting.explain(np.array([0]), np.array([2]))
    plots.events(axes, explanation, 0)
    plots.key(figure, explanation)
    assert not hatched(axes)
    assert "unknown" not in [text.get_text() for text in figure.legends[0].texts]


def test_the_key_names_the_unknown(chain: Explainer) -> None:
    figure = Figure()
    plots.key(figure, chain.explain(np.array([0])))
    assert {"terminated", "unknown"} <= {text.get_text() for text in figure.legends[0].texts}


# On its way


def test_a_stored_explainer_knows_as_little(chain: Explainer, tmp_path: Path) -> None:
    explainers.save(chain, small_mdp.environment(), tmp_path)
    before, after = every_pair(chain), every_pair(explainers.load(tmp_path))
    np.testing.assert_allclose(after.unknown, before.unknown, atol=1e-7)
    save_explanation(before, tmp_path / "explanation.npz")
    again = load_explanation(tmp_path / "explanation.npz")
    np.testing.assert_array_equal(again.unknown, before.unknown)
    np.testing.assert_array_equal(again[:2].unknown, before.unknown[:2])


def test_a_served_explainer_says_what_it_does_not_know(chain: Explainer, tmp_path: Path) -> None:
    explainers.save(chain, small_mdp.environment(), tmp_path)
    answer = _load_pyfunc(str(tmp_path)).predict(pd.DataFrame({"state": [0, 0], "action": [0, 1]}))
    tried, untried = answer[answer["row"] == 0], answer[answer["row"] == 1]
    assert (tried["support"] == 4).all()
    np.testing.assert_allclose(tried["unknown"], chain.explain(np.array([0])).unknown[0], atol=1e-7)
    assert tried[["odd", "even", "first odd"]].notna().all(axis=None)
    assert (untried["support"] == 0).all()
    assert (untried["unknown"] == 1).all()
    assert untried[["odd", "even", "first odd"]].isna().all(axis=None)


# In tables


def test_the_known_share_stands_beside_the_errors() -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    cases = ExactSolution(env, policy, outcomes, horizon=HORIZON).cases(200, generator(0, "test"))
    errors = evaluate(explainer_of(sampled((2, 1)), policy), env, cases)
    assert 0 < errors.pi_known < 1
    assert (errors.frame()["pi_known"] == errors.pi_known).all()
    assert (errors.frame()["foil_known"] == errors.foil_known).all()


@pytest.mark.parametrize(
    ("share", "shown"), [(1.0, "100.00%"), (0.99996, "99.99%"), (0.9343, "93.43%"), (0, "0.00%")]
)
def test_only_all_is_shown_as_all(share: float, shown: str) -> None:
    known = {"known/pi": share, "known/foil": 0.5, "disagreement": float("nan")}
    assert f"tried state-action pairs: {shown} with the policy's action" in overall(known)


def test_a_reference_is_announced_only_where_there_is_one() -> None:
    mean = pd.DataFrame({name: [0.1] for name in ("pi_mse", "foil_mse", "pi_max", "foil_max")}, index=["odd"])
    assert error_table("", mean, reference={"odd": {"pi_mse": (1.0, 0.1)}}).caption
    assert not error_table("", mean, reference={"even": {"pi_mse": (1.0, 0.1)}}).caption


# States and actions that do not exist


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        ([-1], None, "numbered from 0 to 5, got -1"),
        ([6], None, "from 0 to 5, got 6"),
        ([6], [0], "from 0 to 5, got 6"),
        ([[0, 1]], None, "batch of whole numbers"),
        ([[0, 1]], [0], "batch of whole numbers"),
        ([[0], [1]], [[0], [0]], "batch of whole numbers"),
        ([0.5], [0], "batch of whole numbers"),
        ([0], [0.5], r"one whole number for each observation, got \[0.5\]"),
        ([0], [[0]], "one whole number for each observation"),
    ],
)
def test_what_does_not_exist_is_refused(
    chain: Explainer, states: list[int], actions: list[int] | None, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        chain.explain(np.array(states), None if actions is None else np.array(actions))


def test_a_partition_is_not_needed_to_know_what_is_unknown() -> None:
    policy = mostly_first()
    outcomes = OutcomeSet([event("odd", small_mdp.odd, first=True)])
    learned = ReplayedFHTD(small_mdp.environment(), policy, outcomes, horizon=3)
    learned.update(concatenate([step(0, 0, 1), step(1, 0, 0)]))
    unknown = Explainer(learned, policy, outcomes.legend).explain(np.array([0])).unknown
    np.testing.assert_allclose(unknown, [[0, 0.25, 0.25]])
