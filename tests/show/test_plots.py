"""What a person looks at: that plots say what they should, and group what belongs together."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
from gymnasium.spaces import Discrete
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from omegaconf import OmegaConf

from tests.support import small_mdp
from tests.support.explanations import toy
from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend, OutcomeSet
from tpd.core.types import Array, FloatArray
from tpd.envs import Environment
from tpd.envs.events.default import default_outcomes
from tpd.policies.function import DiscreteFunctionPolicy, FunctionPolicy
from tpd.policies.tabular import GreedyPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.show import learning_curves, plots
from tpd.show.figures import FigureSpec, figures_from_config
from tpd.show.strategies import group_by_strategy
from tpd.show.tables import overall
from tpd.sources import named_states


def future(refuels: float, at: int = 5, support: float = 1.0) -> Explanation:
    """Some refuelling from a step on; the rest is driving."""
    expected = np.zeros((1, 20, 2))
    expected[0, at : at + 5, 0] = refuels / 5
    expected[0, :, 1] = 1 - expected[0, :, 0]
    legend = Legend(("refuel", "move"), (-1.0, -1.0), ("refuel", "move"), 1.0)
    states = np.zeros(1, dtype=int)
    return Explanation(states, states, expected, np.ones((1, 20)), np.array([support]), legend, 0.99)


def test_seeds_are_grouped_by_what_they_expect() -> None:
    seeds = {"0": future(0.2), "1": future(0.25), "2": future(0.7), "3": future(4.5), "4": future(4.5, at=12)}
    assert group_by_strategy(seeds, 0) == [["0", "1"], ["2"], ["3"], ["4"]]
    assert group_by_strategy({"7": future(1)}, 0) == [["7"]]


def test_an_outcome_has_one_colour_in_every_plot() -> None:
    explanation = future(1.0)
    figure = Figure()
    top, middle, bottom = figure.subplots(3, 1)
    plots.events(top, explanation, 0)
    plots.reward_components(middle, explanation, 0)
    plots.return_difference(bottom, explanation - future(3.0), 0)
    colours = [
        {to_hex(bars.get_facecolor()[0]) for bars in axes.collections} for axes in (top, middle, bottom)
    ]
    refuel, move = (
        plots.style(explanation.legend.names, name)["facecolor"].lower() for name in ("refuel", "move")
    )
    for shown in colours:
        assert {refuel, move} <= shown


def test_first_occurrences_look_like_their_events() -> None:
    names = ("pickup", "dropoff", "first pickup")
    assert plots.style(names, "pickup")["facecolor"] == plots.style(names, "first pickup")["facecolor"]
    assert plots.style(names, "pickup")["facecolor"] != plots.style(names, "dropoff")["facecolor"]


@pytest.mark.parametrize("draw", [plots.events, plots.outcomes, plots.reward_components])
def test_what_is_unknown_is_said_and_not_drawn(draw: object) -> None:
    assert callable(draw)
    axes = Figure().subplots()
    draw(axes, future(1.0, support=0.0), 0)
    assert [text.get_text() for text in axes.texts] == ["never tried: unknown"]
    assert not axes.collections
    assert not axes.lines


def test_lines_that_lie_over_each_other_can_all_be_seen() -> None:
    axes = Figure().subplots()
    together, apart = np.ones(6), np.array([1.0, 1.0, 1.0, 1.0, 0.5, 0.0])
    plots._draw_lines(axes, ("a", "b", "c"), {"a": together, "b": apart, "c": np.zeros(6)})
    colours = [plots.style(("a", "b", "c"), name)["facecolor"].lower() for name in "abc"]
    drawn: list[Any] = list(axes.collections)
    striped = [lines for lines in drawn if lines.get_linewidth()[0] == plots.STRIPED]
    assert [to_hex(lines.get_color()[0]) for lines in striped] == colours[:2]
    (first, dashes), (second, others) = (lines.get_linestyle()[0] for lines in striped)
    assert sum(dashes) == sum(others) == 2 * abs(first - second)  # each in the gaps of the other
    for lines in striped:
        assert [path[:, 0].tolist() for path in lines.get_segments()] == [[0, 1, 2, 3]]


def test_lines_over_each_other_at_0_are_one_grey_line() -> None:
    axes = Figure().subplots()
    plots._draw_lines(axes, ("a", "b"), {"a": np.zeros(3), "b": np.array([0.0, 0.0, 1.0])})
    drawn: list[Any] = [lines for lines in axes.collections if lines.get_paths()]
    grey = [lines for lines in drawn if to_hex(lines.get_color()[0]) == plots.AT_ZERO["color"]]
    assert [path[:, 0].tolist() for lines in grey for path in lines.get_segments()] == [[0, 1], [0, 1]]
    assert len(drawn) == 4  # and the piece of each that is alone


def test_events_that_are_not_expected_have_no_line_but_are_named() -> None:
    names = ("goal", "crash", "stall")
    one = toy([[0.5, 0.0, 0.001]] * 3, names=names, weights=(None,) * 3)
    axes = Figure().subplots()
    plots.outcomes(axes, one, 0)
    assert {line.get_color() for line in axes.lines} == {plots.line_style(names, "goal")["color"]}
    assert axes.texts[0].get_text() == "no line, because not expected at any step: crash, stall"


@pytest.mark.parametrize("other", [0, 1])
def test_the_same_state_is_shown_once(other: int) -> None:
    figure = Figure()
    row = [figure.add_subplot(figure.add_gridspec(1, 2)[0, k]) for k in range(2)]
    plots.pictures(row, [np.zeros((2, 2, 3)), np.full((2, 2, 3), other)])
    assert len(figure.axes) == (2 if other else 1)


def test_words_below_a_plot_are_said_once_and_together() -> None:
    axes = Figure().subplots()
    for words in ("gaps: too wide", "not learned: crash", "gaps: too wide"):
        plots._say_below(axes, words)
    (below,) = axes.texts
    assert below.get_text() == "gaps: too wide; not learned: crash"


def test_a_difference_to_the_unknown_is_not_drawn() -> None:
    axes = Figure().subplots()
    plots.return_difference(axes, future(1.0) - future(2.0, support=0.0), 0)
    assert [text.get_text() for text in axes.texts] == ["never tried: unknown"]
    assert not axes.collections


def test_the_slope_of_a_curve_is_that_of_its_errors() -> None:
    steps = np.geomspace(1e3, 5e6, 20)
    curve = pd.DataFrame({"step": steps, "pi_mse": 3 / steps, "foil_mse": 3 / np.sqrt(steps)})
    left, right = learning_curves.draw({"mine": curve}).axes
    assert left.get_legend_handles_labels()[1] == ["mine (slope -1.00)"]
    assert right.get_legend_handles_labels()[1] == ["mine (slope -0.50)"]


def test_a_figure_resolves_the_policys_action_and_the_runner_up() -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    explainer = Explainer(ExactSolution(env, policy, outcomes, horizon=5), policy, outcomes.legend)
    spec = FigureSpec.from_config(
        "mine", env, [{"state": 3}, {"state": 3, "action": "runner_up"}], contrast=True
    )
    own, runner_up = spec.explain(explainer, env).actions
    assert own == policy.action(np.array([3]))[0]
    returns = explainer.action_returns(np.array([3]))[0]
    others = [action for action in range(small_mdp.NUM_ACTIONS) if action != own]
    assert runner_up == max(others, key=lambda action: returns[action])


def test_the_start_is_a_state_where_episodes_start(fuel_taxi: Environment) -> None:
    policy = GreedyPolicy(np.zeros((1050, 7)), fuel_taxi.mask(np.arange(1050)), 0.99)
    state = named_states.find(fuel_taxi, policy, "start")
    assert fuel_taxi.model is not None
    assert fuel_taxi.model.start[state.observation[0]] > 0
    assert state.observation == named_states.find(fuel_taxi, policy, "start").observation
    assert state.picture is not None
    assert named_states.name(fuel_taxi, "start") == "start"


class Flat:
    """Predicts the same of everything."""

    horizon = 4
    tie = 0.0

    def __init__(self, outcomes: OutcomeSet) -> None:
        self._width = outcomes.width

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        return np.full((len(observations), self.horizon, self._width), 0.1)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.ones(len(observations))


def lean(observations: Array) -> Array:
    return np.asarray(observations[:, 2] > 0)


def test_a_moment_is_where_the_policy_comes_to() -> None:
    env = Environment("CartPole-v1")
    policy = DiscreteFunctionPolicy(lean, 0.99, Discrete(2))
    one = env.make()
    observation, _ = one.reset(seed=2)
    for _ in range(7):
        observation, *_ = one.step(int(observation[2] > 0))
    state = named_states.find(env, policy, {"episode": 2, "step": 7})
    np.testing.assert_array_equal(state.observation, observation[None])
    assert state.name == "episode 2, step 7"
    assert state.picture is not None
    named = named_states.find(env, policy, [0.0, 0.1, 0.2, 0.3])
    np.testing.assert_allclose(named.observation, [[0, 0.1, 0.2, 0.3]])


def test_an_episode_that_is_over_is_left_at_its_last_step() -> None:
    env = Environment("CartPole-v1")
    policy = DiscreteFunctionPolicy(lambda seen: np.zeros(len(seen)), 0.99, Discrete(2))
    last = named_states.find(env, policy, {"episode": 0, "step": 10**6})
    step = int(last.name.removeprefix("episode 0, step "))
    one = env.make()
    one.reset(seed=0)
    ends = [bool(one.step(0)[2]) for _ in range(step + 1)]
    assert ends == [False] * step + [True]


@pytest.mark.parametrize("place", [{"episode": -1, "step": 0}, {"episode": 0, "step": 0.5}])
def test_a_moment_that_cannot_be_is_refused(place: dict[str, float], fuel_taxi: Environment) -> None:
    with pytest.raises(ValueError, match=r"-1|0\.5"):
        FigureSpec.from_config("mine", fuel_taxi, [{"state": place}])


def test_a_page_shows_what_it_explains() -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    explainer = Explainer(ExactSolution(env, policy, outcomes, horizon=5), policy, outcomes.legend)
    (spec,) = figures_from_config(OmegaConf.create({}), env)
    assert spec.states == ("start", "start")
    figure, explanation = spec.draw(explainer, env, "seed 0")
    np.testing.assert_array_equal(explanation.expected, spec.explain(explainer, env).expected)
    assert explanation.observations[0] == explanation.observations[1]
    titles = [axes.get_title() for axes in figure.axes]
    assert f"state {explanation.observations[0]}: action {explanation.actions[0]}" in titles
    assert f"state {explanation.observations[0]}: action {explanation.actions[1]}" in titles


def test_continuous_actions_are_set_against_their_opposite() -> None:
    env = Environment("Pendulum-v1", action_names=["torque"])
    policy = FunctionPolicy(
        lambda seen: np.clip(seen[:, 2:], -1.5, 1.5), 0.99, Environment("Pendulum-v1").action_space
    )
    outcomes = default_outcomes(env)
    explainer = Explainer(Flat(outcomes), policy, outcomes.legend)
    start, later = figures_from_config(OmegaConf.create({}), env)
    assert (start.name, later.name) == ("start", "later")
    figure, explanation = later.draw(explainer, env, "seed 0")
    np.testing.assert_allclose(explanation.actions[0], policy.action(explanation.observations[:1])[0])
    np.testing.assert_allclose(explanation.actions[1], -explanation.actions[0])
    torque = explanation.actions[0].item()
    titles = [axes.get_title() for axes in figure.axes]
    assert f"episode 0, step 50: torque {torque:.2f}" in titles
    assert f"episode 0, step 50: torque {-torque:.2f}" in titles


def test_what_cannot_be_said_is_left_out() -> None:
    metrics = {"known/pi": 1.0, "known/foil": 0.5, "disagreement": float("nan")}
    assert "higher expected return" not in overall(metrics)
    assert "12.0% of the visits" in overall(metrics | {"disagreement": 0.12})
