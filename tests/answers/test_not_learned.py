"""What was not learned has no number: in sentences, tables, plots, frames and notebooks."""

import re
from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.text import Text
from rich.console import Console

from tests.support.explanations import toy
from tests.support.sentences import describe, paragraph
from tpd.answers import what_if
from tpd.answers.answer import Answer
from tpd.answers.batch import Answers, Choice
from tpd.answers.differences import Differences
from tpd.answers.sentences.learned import learned_instead
from tpd.answers.sentences.overtakes import overtakes
from tpd.core.explanation import Explanation, together
from tpd.core.verdicts import Verdict, Verdicts
from tpd.show import answer_tables, plots
from tpd.show.figure_notes import remarks

STEPS, NAMES = 4, ("goal", "crash", "first goal", "first crash")
WEIGHTS = (10.0, -100.0, None, None)
LEARNED, NOT_LEARNED, TOO_RARE = Verdict.LEARNED, Verdict.NOT_LEARNED, Verdict.TOO_RARE
NUMBER = r"\d+(?:\.\d+)?"
SECRET = 0.0773
"""How likely the crash is at each step, as nobody may say."""


def verdicts(crash: Verdict = NOT_LEARNED, returns: Verdict = LEARNED, end: Verdict = LEARNED) -> Verdicts:
    """All is learned but the crash."""
    each = np.full((1, STEPS, len(NAMES) + 1), LEARNED, dtype=np.int8)
    each[..., [1, 3]] = crash
    each[..., -1] = end
    return Verdicts(each, each.copy(), np.full((1, STEPS), returns, dtype=np.int8))


def future(goal: float = 0.2, risk: float = SECRET, drawn: bool = False, **known: Verdict) -> Explanation:
    steps = [[goal, risk, goal, risk]] * STEPS
    one = toy(steps, names=NAMES, weights=WEIGHTS, running=[0.8, 0.6, 0.4, 0.3])
    one = replace(one, verdicts=verdicts(**known))
    return replace(one, draws=np.repeat(one.expected[None], 19, axis=0)) if drawn else one


def numbers_of_crash(text: str) -> list[str]:
    """What might give the crash away, however it is said."""
    shares = {f"{100 * k * SECRET:.{digits}f}" for k in range(1, STEPS + 1) for digits in (0, 1)}
    given_away = shares | {f"{k * SECRET:.2f}" for k in range(1, STEPS + 1)}
    return [number for number in re.findall(NUMBER, text) if number in given_away]


def shown(table: object) -> str:
    console = Console(width=200, file=StringIO())
    console.print(table)
    assert isinstance(console.file, StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("verdict", [NOT_LEARNED, TOO_RARE])
@pytest.mark.parametrize("drawn", [False, True])
def test_sentences_say_that_it_is_not_learned_and_what_would_help(verdict: Verdict, drawn: bool) -> None:
    said = describe(future(drawn=drawn, crash=verdict), 0, "run")
    reason = (
        "Not learned, so no number is given: crash"
        if verdict == NOT_LEARNED
        else "Too rare in the evaluation"
    )
    assert reason in said
    assert "for an estimate by rollouts, ask about a recorded step" in said
    assert not numbers_of_crash(said)
    assert "goal" in said.split("Not learned")[0]
    learned = describe(future(drawn=drawn, crash=LEARNED), 0, "run")
    assert numbers_of_crash(learned)
    assert "learned" not in learned


def test_a_comparison_leaves_out_what_is_not_learned() -> None:
    contrast = future() - future(goal=0.1, risk=0.01)
    said = paragraph(contrast, 0, "run", "jump", chosen="run")
    assert not numbers_of_crash(said)
    assert "not learned, and not included in these returns: crash." in said
    assert said.count("crash") == 2  # there, and why no number is given
    assert [one.outcome for one in Differences(contrast).main(0)] == ["goal"]


def test_returns_that_are_not_learned_are_neither_compared_nor_valued() -> None:
    one, other = future(returns=NOT_LEARNED), future(goal=0.1, returns=NOT_LEARNED)
    said = paragraph(one - other, 0, "run", "jump", chosen="jump")
    assert "The return of run and jump is not learned, so returns are not compared." in said
    assert "highest expected return" not in said
    assert "worth" not in said
    assert "Run differs from jump most in goal" in said
    assert np.isnan(what_if.returns(one, {})).all()
    assert what_if.overtaking(one - other, 0, "goal") is None
    assert "is not learned, so the reward of goal at which their order changes is unknown" in overtakes(
        one - other, 0, "goal", "run", "jump"
    )
    assert "its return is not learned" in remarks(one, 0)


def test_nothing_is_said_to_be_equal_where_nothing_is_learned() -> None:
    one = future(returns=NOT_LEARNED)
    assert one.verdicts is not None
    nothing = Verdicts(*(np.full_like(part, NOT_LEARNED) for part in vars(one.verdicts).values()))
    said = paragraph(replace(one, verdicts=nothing) - one, 0, "run", "jump", chosen="run")
    assert "No outcome is learned for both run and jump, so they are not compared." in said
    assert "do not differ" not in said


def test_no_reward_is_named_for_an_outcome_whose_count_is_not_learned() -> None:
    one, other = future(), future(goal=0.1, risk=0.2)
    assert what_if.overtaking(one - other, 0, "goal") is not None
    assert what_if.overtaking(one - other, 0, "crash") is None
    said = overtakes(one - other, 0, "crash", "run", "jump")
    assert (
        said == "How often crash happens is not learned, so the reward of crash at which their order changes "
        "is unknown."
    )
    assert what_if.best_actions(one, "crash", -1, 1) == []


def test_an_end_that_is_not_learned_has_no_probability() -> None:
    one = future(end=NOT_LEARNED)
    said = remarks(one, 0)[0]
    assert said == f"whether the episode continues after step {STEPS - 1} is not learned"
    assert "0.30" in remarks(future(), 0)[0]
    beyond = paragraph(one - future(goal=0.19, end=NOT_LEARNED), 0, "run", "jump")
    assert "When the episode ends is not learned" in beyond
    assert "30 %" not in beyond


@given(
    st.lists(st.tuples(st.floats(0, 0.2), st.floats(0, 0.2)), min_size=STEPS, max_size=STEPS),
    st.sampled_from([NOT_LEARNED, TOO_RARE]),
)
def test_where_nothing_is_learned_no_digit_is_said(
    steps: list[tuple[float, float]], verdict: Verdict
) -> None:
    rows = [[goal, crash, goal, crash] for goal, crash in steps]
    one = toy(rows, names=NAMES, weights=WEIGHTS)
    nothing = np.full((1, STEPS, len(NAMES) + 1), verdict, dtype=np.int8)
    one = replace(one, verdicts=Verdicts(nothing, nothing, nothing[..., 0]))
    for said in (describe(one, 0, "run"), paragraph(one - one, 0, "run", "jump", "run")):
        assert not re.search(r"\d", said)
        assert "goal" in said
        assert "crash" in said


def test_a_sum_is_spoken_of_by_the_last_step_that_is_learned() -> None:
    one = future()
    assert one.verdicts is not None
    by = one.verdicts.by.copy()
    by[:, :2, 3] = LEARNED
    said = describe(replace(one, verdicts=replace(one.verdicts, by=by)), 0, "run")
    assert "crash 15 % by step 1" in said
    assert "Not learned" not in said


def test_tables_give_no_number() -> None:
    contrast = future() - future(risk=0.01)
    text = shown(answer_tables.comparison(contrast, "run", "jump"))
    rows = {line.split("│")[1].strip(): line for line in text.splitlines() if line.startswith("│")}
    for name in ("crash", "first crash"):
        assert not re.search(r"\d", rows[name])
        assert "not learned" in rows[name]
    assert "80.0 %" in rows["first goal"]
    assert "for an estimate by rollouts, ask about a recorded step" in " ".join(text.split())
    untold = future(returns=NOT_LEARNED)
    text = shown(answer_tables.comparison(untold - untold, "run", "jump"))
    total = next(line for line in text.splitlines() if line.startswith("│ return"))
    assert not re.search(r"\d", total.removeprefix(f"│ return within {STEPS} steps"))
    worth = {"return": np.array([np.nan, 1.0])}
    ranked = answer_tables.ranking(["run", "jump"], worth, {}, None, together([untold, future()]), {})
    assert "not learned" in shown(ranked)


def finite(axes: Axes, colour: str) -> int:
    lines = [line for line in axes.lines if line.get_color() == colour]
    return int(sum(np.isfinite(np.asarray(line.get_ydata(), dtype=float)).sum() for line in lines))


@pytest.mark.parametrize("panel", [plots.outcomes, plots.happened_by])
@pytest.mark.parametrize("drawn", [False, True])
def test_plots_draw_no_line_and_no_band(panel: object, drawn: bool) -> None:
    assert callable(panel)
    axes = Figure().subplots()
    panel(axes, future(drawn=drawn), 0)
    colours = {name: plots.line_style(NAMES, name)["color"] for name in ("goal", "crash")}
    assert finite(axes, colours["goal"]) == STEPS
    assert finite(axes, colours["crash"]) == 0
    assert [text.get_text() for text in axes.texts] == ["not learned or too rare to tell: crash"]


def test_differences_and_rewards_that_are_not_learned_are_not_drawn() -> None:
    contrast = future(returns=NOT_LEARNED) - future(goal=0.1, risk=0.01)
    for panel in (plots.event_difference, plots.return_difference):
        axes = Figure().subplots()
        panel(axes, contrast, 0)
        assert finite(axes, plots.line_style(NAMES, "crash")["color"]) == 0
        assert "crash" in axes.texts[0].get_text()
    assert finite(axes, "black") == 2  # the zero line
    axes = Figure().subplots()
    plots.reward_components(axes, future(returns=NOT_LEARNED), 0)
    assert finite(axes, "black") == 2


def test_no_total_is_drawn_where_a_part_of_it_is_not_told() -> None:
    one = future()
    late = one.verdicts
    assert late is not None
    late.at[:, 2:, [1, 3]], late.by[:, 2:, [1, 3]] = LEARNED, LEARNED
    rewards, difference = Figure().subplots(2)
    plots.reward_components(rewards, one, 0)
    plots.return_difference(difference, one - one, 0)
    for axes in (rewards, difference):
        assert finite(axes, "black") == 2 + 2  # the zero line, and the steps at which all is told
        assert axes.texts[0].get_text().startswith("no total where a term is not known; ")


def test_a_reward_whose_event_has_too_wide_a_band_has_no_bar_and_no_total() -> None:
    drawn = future(drawn=True, crash=LEARNED)
    assert drawn.draws is not None
    drawn.draws[::2, :, 1, 1], drawn.draws[1::2, :, 1, 1] = 0, 1
    axes = Figure().subplots()
    plots.reward_components(axes, drawn, 0)
    assert axes.texts[0].get_text() == "no total where a term is not known or uncertain (crash)"
    [total] = [line for line in axes.lines if line.get_marker() == "."]
    assert np.isnan(np.asarray(total.get_ydata(), dtype=float)).tolist() == [False, True, False, False]
    crash = to_rgba(plots.style(NAMES, "crash")["facecolor"])
    bars = [bar for bar in axes.collections if np.allclose(bar.get_facecolor()[0], crash)]
    corners = np.concatenate([np.asarray(bar.get_paths()[0].vertices, dtype=float) for bar in bars])
    assert len(bars) == 2
    assert set(corners[:, 0]) == {-0.5, 0.5, 1.5, 2.5, 3.5}


def test_frames_and_notebooks_give_no_number() -> None:
    one = future()
    frame = one.to_frame()
    crash = frame["outcome"].isin(["crash", "first crash"])
    assert frame.loc[crash, "expected"].isna().all()
    assert frame.loc[~crash, "expected"].notna().all()
    assert (frame["learned"] != crash).all()
    both = (one - future(goal=0.1)).to_frame()
    assert both.loc[both["outcome"] == "crash", ["fact", "foil", "difference"]].isna().all(axis=None)
    page = one._repr_html_().split("</style>")[1]
    assert not numbers_of_crash(page)
    assert "step 0: not learned" in page


def test_a_band_that_is_too_wide_says_what_would_narrow_it() -> None:
    drawn = future(drawn=True, crash=LEARNED)
    assert drawn.draws is not None
    drawn.draws[::2, ..., 3], drawn.draws[1::2, ..., 3] = 0, 0.25
    assert "evaluation.seconds" in describe(drawn, 0, "run")
    goal = future(goal=0.1, drawn=True, crash=LEARNED)
    assert goal.draws is not None
    goal.draws[..., 3] = drawn.draws[..., 3]
    said = paragraph(drawn - goal, 0, "run", "jump")
    assert said.count("evaluation.seconds") == 1
    assert said.count("uncertain: crash") == 2
    assert "uncertain: crash 31 % [0 to 100 %] (such forecasts" in said


# What was learned, beside rollouts


@pytest.mark.parametrize(
    ("learned", "said"),
    [
        (
            0.24,
            "agrees with the rollouts within 5 % in what is learned of all first occurrences and the return",
        ),
        (0.1, "goal within 4 steps"),
    ],
)
def test_what_is_off_by_little_is_not_called_wrong(learned: float, said: str) -> None:
    """Rollouts that all agree have a narrow band, which a good forecast may miss by a little."""
    one = future(goal=0.25, risk=0.0, crash=LEARNED)
    rolled_out = replace(one, verdicts=None, rollouts=np.repeat(one.expected[None], 500, axis=0))
    text = learned_instead(rolled_out, future(goal=learned, risk=0.0, crash=LEARNED), "go")
    assert said in text


def test_a_wrong_return_is_named_where_no_first_occurrence_is_learned() -> None:
    one = future(goal=0.25, risk=0.0)
    rolled_out = replace(one, verdicts=None, rollouts=np.repeat(one.expected[None], 500, axis=0))
    every = verdicts()
    every.by[..., [2, 3]] = NOT_LEARNED
    right, wrong = (replace(future(goal=goal, risk=0.0), verdicts=every) for goal in (0.25, 0.5))
    assert "in what is learned of the return" in learned_instead(rolled_out, right, "go")
    said = learned_instead(rolled_out, wrong, "go")
    assert "contradicts the rollouts: return " in said
    unknown = replace(wrong, verdicts=replace(every, returns=np.full_like(every.returns, NOT_LEARNED)))
    assert "Nothing that could be compared" in learned_instead(rolled_out, unknown, "go")


def test_an_action_of_which_nothing_is_learned_is_not_said_to_have_no_outcome() -> None:
    nothing = future(returns=NOT_LEARNED, end=NOT_LEARNED)
    assert nothing.verdicts is not None
    nothing.verdicts.at[:], nothing.verdicts.by[:] = NOT_LEARNED, NOT_LEARNED
    assert describe(nothing, 0, "run").startswith("Run: nothing about it is learned")


def test_a_wide_band_on_the_way_does_not_hide_a_narrow_one_at_the_end() -> None:
    """The event is certain within the horizon, and only when it comes is unknown."""
    steps = [[0.0, 0, 0, 0], [1.0, 0, 1, 0], [0.0, 0, 0, 0], [0.0, 0, 0, 0]]
    one = replace(toy(steps, names=NAMES, weights=WEIGHTS), verdicts=verdicts(crash=LEARNED))
    early, late = one.expected.copy(), np.roll(one.expected, 2, axis=1)
    drawn = replace(one, draws=np.concatenate([np.repeat(each[None], 10, axis=0) for each in (early, late)]))
    assert describe(drawn, 0, "go").startswith("Go: goal at step 1.")


# The whole record


@pytest.mark.parametrize("verdict", [NOT_LEARNED, TOO_RARE])
def test_no_view_of_an_answer_gives_a_number(verdict: Verdict) -> None:
    answer = answer_of(verdict)
    texts = [text.get_text() for text in answer.plot().findobj(Text)]
    assert any("crash" in text for text in texts)
    # numbers along the axes belong to the goal
    said = [text for text in texts if not re.fullmatch(rf"\W?{NUMBER}", text)]
    for view in (answer.text, answer._repr_html_().split("</style>")[-1], *said, *map(str, answer.facts)):
        assert not numbers_of_crash(view)
    assert answer.table.loc[["crash", "first crash"]].drop(columns="verdict").isna().all(axis=None)
    frame = answer.to_frame()
    assert frame.loc[frame["outcome"].str.contains("crash"), ["fact", "foil"]].isna().all(axis=None)
    assert answer.how.verdicts["first crash"] == verdict.words


def test_what_is_learned_has_its_number_in_every_view() -> None:
    answer = answer_of(LEARNED)
    assert numbers_of_crash(answer.text)
    assert answer.table["fact"].notna().all()


def answer_of(crash: Verdict) -> Answer:
    return Answers(
        facts=future(drawn=True, crash=crash),
        foils=future(goal=0.1, risk=SECRET / 2, drawn=True, crash=crash),
        fact=np.zeros(1, dtype=np.int64),
        foil=np.zeros(1, dtype=np.int64),
        choices=[Choice("here", "run", "jump", "run")],
        tie=0.0,
        run="a run",
        reason="rollouts=0",
    )[0]


def test_reward_panels_name_only_what_is_rewarded() -> None:
    """Actions that are part of a partition have a weight of 0."""
    one = future()
    free = replace(one, legend=replace(one.legend, weights=(10.0, 0.0, None, None)))
    untold = "no total where a term is not known; not learned or too rare to tell: crash"
    for each, words in ((one, [untold]), (free, [])):
        axes = Figure().subplots()
        plots.reward_components(axes, each, 0)
        assert [text.get_text() for text in axes.texts] == words
