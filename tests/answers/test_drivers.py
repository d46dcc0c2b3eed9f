"""What a forecast relies on: Shapley values, when they are told, and when they are withheld."""

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from tests.support.explanations import toy
from tpd.answers.asked import Asked
from tpd.answers.drivers import (
    LEAST_BACKGROUND,
    MOST_EXACT,
    MOST_UNLIKE,
    SAMPLES,
    SIMULATED_SAMPLES,
    Drivers,
    Group,
    correlated_groups,
    mixtures,
    plan,
    shapley,
    share_unlike,
)
from tpd.answers.shapley import exact_values, sampled_values
from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend
from tpd.core.types import Array, BoolArray, FloatArray, IntArray
from tpd.core.verdicts import Verdict, Verdicts
from tpd.envs import Environment
from tpd.policies.function import function_policy
from tpd.predictors.explainer import Explainer
from tpd.sources.states_met import StatesMet

HORIZON = 4
NAMES = ("falls", "reward", "first falls")
LEGEND = Legend(NAMES, (None, 1.0, None), (), 1.0, ("falls", "first falls"))
CART_POLE = ("cart position", "cart velocity", "pole angle", "pole angular velocity")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def each_alone(count: int) -> list[Group]:
    return [Group(str(k), np.array([k])) for k in range(count)]


def by_all_orders(worth: Callable[[frozenset[int]], float], players: int) -> list[float]:
    """Shapley values as they are defined: what each adds to those before it, over all orders."""
    values = [0.0] * players
    for order in itertools.permutations(range(players)):
        for place, player in enumerate(order):
            before = frozenset(order[:place])
            values[player] += (worth(before | {player}) - worth(before)) / math.factorial(players)
    return values


def worth_in(worths: Sequence[float], members: frozenset[int]) -> float:
    return worths[sum(1 << member for member in members)]


# The values themselves


def test_exact_values_are_those_of_all_orders() -> None:
    players, worths = 4, rng().normal(size=(2**4, 3))

    def worth(coalitions: BoolArray) -> FloatArray:
        return np.asarray(worths[coalitions @ (1 << np.arange(players))])

    found = exact_values(worth, players)
    for game in range(3):
        column = worths[:, game].tolist()
        due = by_all_orders(partial(worth_in, column), players)
        np.testing.assert_allclose(found[:, game], due, atol=1e-12)
    assert not np.allclose(found[:, 0], by_all_orders(lambda members: float(len(members)), players))


def test_sampled_values_are_exact_for_sums_and_always_add_up() -> None:
    players, weights = MOST_EXACT + 3, rng(1).normal(size=MOST_EXACT + 3)

    def additive(coalitions: BoolArray) -> FloatArray:
        return np.asarray(coalitions @ weights)[:, None]

    def entangled(coalitions: BoolArray) -> FloatArray:
        return np.sin(additive(coalitions)) * coalitions[:, :1]

    np.testing.assert_allclose(sampled_values(additive, players, rng())[:, 0], weights, atol=1e-12)
    everyone = entangled(np.ones((1, players), dtype=np.bool_))
    total = sampled_values(entangled, players, rng()).sum()
    assert total == pytest.approx(everyone.item() - entangled(np.zeros((1, players), dtype=np.bool_)).item())


def forecast(rows: FloatArray) -> FloatArray:
    return np.asarray(2 * rows[:, 0] + rows[:, 1] * rows[:, 2] + np.abs(rows[:, 3]))


@pytest.mark.parametrize("count", [5, MOST_EXACT + 2])
def test_values_add_up_to_the_forecast_minus_its_mean(count: int) -> None:
    state, background = rng(2).normal(size=count), rng(3).normal(size=(30, count))
    found = shapley(forecast, state, background, each_alone(count), rng(), plan(count, False).exact)
    assert found.forecast == pytest.approx(forecast(state[None])[0])
    assert found.base == pytest.approx(forecast(background).mean())
    assert found.values.sum() == pytest.approx(found.forecast - found.base)
    np.testing.assert_allclose(found.values[4:], 0, atol=1e-12)
    assert found.values[0] == pytest.approx(2 * (state[0] - background[:, 0].mean()))


def test_a_background_state_with_an_unknown_mixture_is_left_out() -> None:
    state, background = np.zeros(2), rng(4).normal(size=(40, 2))
    background[:15, 1] = 5 + np.arange(15)

    def partly(rows: FloatArray) -> FloatArray:
        return np.where(rows[:, 1] > 4, np.nan, rows[:, 0])

    found = shapley(partly, state, background, each_alone(2), rng())
    assert found.background == 25
    kept = shapley(partly, state, background[15:], each_alone(2), rng())
    np.testing.assert_allclose(found.values, kept.values)
    background[LEAST_BACKGROUND - 1 :, 1] = 9
    background[: LEAST_BACKGROUND - 1, 1] = 0
    assert np.isnan(shapley(partly, state, background, each_alone(2), rng()).values).all()


@pytest.mark.slow
def test_values_are_those_of_the_shap_package() -> None:
    shap = pytest.importorskip("shap")
    state, background = rng(2).normal(size=6), rng(3).normal(size=(30, 6))
    found = shapley(forecast, state, background, each_alone(6), rng())
    theirs = shap.explainers.Exact(forecast, shap.maskers.Independent(background))(state[None])
    np.testing.assert_allclose(found.values, theirs.values[0], atol=1e-9)
    assert found.base == pytest.approx(theirs.base_values[0])


# Which features go together


def test_copies_go_together_and_others_stay_apart() -> None:
    free = rng(5).normal(size=(400, 3))
    copy = -3 * free[:, 1] + 0.1 * rng(6).normal(size=400)
    constant = np.ones(400)
    rows = np.column_stack([free, copy, constant])
    groups = correlated_groups(rows, ["a", "b", "c", "minus b", "d"])
    assert [(group.name, group.columns.tolist()) for group in groups] == [
        ("a", [0]),
        ("b and minus b", [1, 3]),
        ("c", [2]),
        ("d", [4]),
    ]
    noisy = np.column_stack([free, copy + 3 * rng(7).normal(size=400)])
    assert len(correlated_groups(noisy, list("abcd"))) == 4


def test_the_weight_of_a_copy_is_that_of_its_group() -> None:
    """Shared by copies, the values of both would be halved and the mixtures unlike anything."""
    base = rng(8).normal(size=(50, 2))
    rows = np.column_stack([base, base[:, 0]])
    groups = correlated_groups(rows, ["a", "b", "a again"])
    found = shapley(lambda mixed: mixed[:, 0] + mixed[:, 2], np.array([1.0, 1.0, 1.0]), rows, groups, rng())
    assert [group.name for group in groups] == ["a and a again", "b"]
    np.testing.assert_allclose(found.values, [2 - 2 * base[:, 0].mean(), 0], atol=1e-12)


def test_features_of_one_name_are_one() -> None:
    groups = correlated_groups(
        rng(9).normal(size=(100, 5)), ["x", "hidden state", "y", *["hidden state"] * 2]
    )
    assert [(group.name, group.columns.tolist()) for group in groups] == [
        ("x", [0]),
        ("hidden state", [1, 3, 4]),
        ("y", [2]),
    ]


# States unlike those met


def circle() -> FloatArray:
    angle = rng(11).uniform(0, 2 * np.pi, size=1000)
    return np.column_stack([np.cos(angle), np.sin(angle)])


def unlike(rows: FloatArray, episode: IntArray) -> float:
    mixed = mixtures(rows[0], rows[:50], each_alone(rows.shape[1]), rng())
    return share_unlike(mixed, rows, episode, rng())


def test_mixtures_of_independent_features_are_like_those_met_and_those_off_a_curve_are_not() -> None:
    episode = np.repeat(np.arange(20), 50)
    assert unlike(rng(10).normal(size=(1000, 2)), episode) < 0.1
    assert len(correlated_groups(circle(), ["x", "y"])) == 2
    assert unlike(circle(), episode) > 0.8


def test_one_odd_episode_makes_nothing_alike() -> None:
    episode = np.repeat(np.arange(20), 50)
    rows = circle()
    rows[episode == 7] *= 5
    assert unlike(rows, episode) > MOST_UNLIKE
    assert np.isnan(unlike(rows, np.zeros(1000, dtype=np.int64)))


def test_a_mixture_has_something_of_both_and_keeps_groups_whole() -> None:
    background = np.ones((5, 4)) * np.arange(1, 6)[:, None]
    groups = [Group("a", np.array([0, 2])), Group("b", np.array([1])), Group("c", np.array([3]))]
    mixed = mixtures(np.zeros(4), background, groups, rng())
    assert (mixed == 0).any(axis=1).all()
    assert (mixed > 0).any(axis=1).all()
    np.testing.assert_array_equal(mixed[:, 0], mixed[:, 2])
    assert len(np.unique(mixed > 0, axis=0)) == 2**3 - 2


@pytest.mark.parametrize(
    ("groups", "simulated"), [(4, False), (10, False), (24, False), (4, True), (9, True)]
)
def test_forecasts_stay_within_their_budget(groups: int, simulated: bool) -> None:
    asked_about = list[int]()

    def counted(rows: FloatArray) -> FloatArray:
        asked_about.append(len(rows))
        return rows[:, 0]

    planned = plan(groups, simulated)
    background = rng().normal(size=(planned.background, groups))
    shapley(counted, np.zeros(groups), background, each_alone(groups), rng(), planned.exact)
    assert sum(asked_about) <= 1.1 * (SIMULATED_SAMPLES if simulated else SAMPLES)
    assert planned.exact == (groups in (4, 10))


# As they are asked for: CartPole, whose fall is foretold from the angle of the pole alone


class Planted:
    """Foretells a fall from one feature."""

    horizon, tie = HORIZON, 0.0

    def __init__(self, feature: int = 2, gap: float = 0.0) -> None:
        self.feature, self.gap = feature, gap

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        likely = 1 / (1 + np.exp(-3 * observations[:, self.feature] - self.gap * actions)) / HORIZON
        found = np.zeros((len(actions), HORIZON, len(NAMES) + 1))
        found[:, :, [0, 2, 3]] = likely[:, None, None]
        found[:, :, 1] = 1
        return found

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.full(len(actions), 1000.0)


def judged(verdict: Verdict, from_step: int = 0) -> Verdicts:
    """[2, ...]: as learned before a step, and so from there on."""
    each = np.full((2, HORIZON, len(NAMES) + 1), Verdict.LEARNED, dtype=np.int8)
    each[:, from_step:] = verdict
    return Verdicts(each, each, each[..., 0])


def asked(
    predictor: Planted | None = None,
    verdicts: Verdicts | None = None,
    observations: FloatArray | None = None,
    rolled_out: Sequence[Explanation] = (),
) -> Asked:
    env = Environment("CartPole-v1", observation_names=CART_POLE)
    policy = function_policy(lambda seen: (seen[:, 2] > 0).astype(np.int64), 1.0, env.action_space)
    met = rng(12).normal(size=(1000, 4)).astype(np.float32) if observations is None else observations
    return Asked(
        explainer=Explainer(predictor or Planted(), policy, LEGEND, verdicts or judged(Verdict.LEARNED)),
        env=env,
        observation=np.full((1, 4), 0.8, dtype=np.float32),
        fact=np.array(1),
        foil=np.array(0),
        names=("push right", "push left"),
        own=np.array(1),
        met=lambda enough: StatesMet(met, np.repeat(np.arange(20), len(met) // 20)),
        rolled_out=tuple(rolled_out),
    )


def test_a_planted_cause_gets_all_the_weight() -> None:
    found = asked().drivers()
    assert found.names == CART_POLE
    assert found.values[2] == pytest.approx(found.forecast - found.base)
    assert found.values[2] > 0.3
    np.testing.assert_allclose(np.delete(found.values, 2), 0, atol=1e-12)
    assert "falls by step 3 after push right" in found.text
    assert "relies mainly on pole angle = 0.8 (+" in found.text
    assert "then" not in found.text
    assert "not what causes the event" in found.text
    elsewhere = asked(Planted(feature=0)).drivers()
    assert "relies mainly on cart position" in elsewhere.text


def test_fact_and_foil_are_told_apart_by_what_moves_their_difference() -> None:
    against = asked(Planted(gap=2.0)).drivers(against_foil=True)
    assert against.values.sum() == pytest.approx(against.forecast - against.base)
    assert against.values[2] == pytest.approx(against.values.sum())
    assert "how much more likely falls is by step 3 after push right than after push left" in against.text
    same = asked(Planted(gap=0.0)).drivers(against_foil=True)
    assert "hardly depends on any part of the state" in same.text


@pytest.mark.parametrize("verdict", [Verdict.NOT_LEARNED, Verdict.TOO_RARE])
def test_what_is_not_learned_is_withheld(verdict: Verdict) -> None:
    found = asked(verdicts=judged(verdict)).drivers("falls")
    assert f"after push right it is {verdict.words}" in found.text
    assert not len(found.values)
    for view in (found.plot, lambda: found.shap):
        with pytest.raises(ValueError, match="No drivers are given"):
            view()
    partly = asked(verdicts=judged(verdict, from_step=2))
    assert "falls by step 1 after" in partly.drivers().text
    assert partly.drivers(by=3).withheld


def test_mixtures_unlike_the_states_met_are_withheld() -> None:
    angle = rng(13).uniform(0, 2 * np.pi, size=1000)
    circles = [np.cos(angle), np.sin(angle), np.cos(2 * angle), np.sin(2 * angle)]
    found = asked(observations=np.column_stack(circles).astype(np.float32)).drivers()
    assert "unlike any visited state" in found.withheld


def test_a_forecast_that_rollouts_contradict_is_not_explained() -> None:
    def rolled_out(chance: float) -> Explanation:
        steps = [[chance / HORIZON, 1.0, chance / HORIZON]] * HORIZON
        return toy(steps, names=NAMES, weights=(None, 1.0, None))

    told = asked(rolled_out=[rolled_out(0.9)] * 2).drivers()
    assert "(92 %, by rollouts 90 %; " in told.text
    wrong = asked(rolled_out=[rolled_out(0.0)] * 2).drivers()
    assert wrong.withheld == "it contradicts the rollouts in this state, 92 % instead of 0 %"
    assert not len(wrong.values)
    assert "contradicts the rollouts" in wrong._repr_html_()


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(ValueError, match=r"there is no outcome 'flies'; the outcomes are falls, reward"):
        asked().drivers("flies")
    with pytest.raises(ValueError, match="by"):
        asked().drivers(by=HORIZON)
    with pytest.raises(ValueError, match="needs a foil in the same state"):
        replace(asked(), foil=None).drivers(against_foil=True)
    nothing = asked()
    nothing.explainer.predictor.updates = 0  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=r"call learn\(\) first"):
        nothing.drivers()


def test_without_the_extra_an_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = asked().drivers()
    monkeypatch.setitem(sys.modules, "shap", None)
    with pytest.raises(ImportError, match=r"pip install 'tpd\[drivers\]'"):
        _ = found.shap
    assert found.text
    assert found.plot() is not None


def test_the_plots_of_the_shap_package_draw_it() -> None:
    shap, pyplot = pytest.importorskip("shap"), pytest.importorskip("matplotlib.pyplot")
    pyplot.switch_backend("Agg")
    found = asked().drivers()
    assert isinstance(found.shap, shap.Explanation)
    for draw in (shap.plots.waterfall, shap.plots.bar):
        draw(found.shap, show=False)
        shown = " ".join(text.get_text() for text in pyplot.gcf().findobj(pyplot.Text))
        pyplot.close("all")
        assert "pole angle" in shown
    others = [replace(asked(), observation=row[None]).drivers() for row in asked().met(1).observations[:5]]
    stacked = shap.Explanation(
        np.stack([one.values for one in others]),
        data=np.stack([one.data for one in others]),
        feature_names=list(found.names),
    )
    shap.plots.beeswarm(stacked, show=False)
    pyplot.close("all")


def test_many_bars_are_cut_short_and_still_add_up() -> None:
    values = np.linspace(-0.2, 0.3, 15)
    names = tuple(f"lidar {k}" for k in range(15))
    many = Drivers("x", names, names, values, np.full(15, 0.01), np.zeros(15), base=0.1, forecast=0.2)
    axes = many.plot().axes[0]
    assert len(axes.patches) == 11
    assert sum(bar.get_width() for bar in axes.patches) == pytest.approx(100 * values.sum())
    assert axes.get_yticklabels()[-1].get_text() == "5 other parts"
