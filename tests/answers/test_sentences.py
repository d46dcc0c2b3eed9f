"""Sentences: every number is that of the explanation, and nothing is said that does not follow from it."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import Compose
from tests.support.explanations import toy
from tests.support.sentences import compare, describe, paragraph
from tpd.answers.resolve import resolve
from tpd.answers.sentences.compare import ContrastNarrator
from tpd.answers.sentences.describe import Narrator
from tpd.answers.sentences.formatting import percent
from tpd.answers.sentences.inevitable import inevitable
from tpd.answers.sentences.overtakes import overtakes
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.beyond import Beyond
from tpd.core.explanation import Explanation, together
from tpd.envs import Environment
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.run.parts import build

SOUTH, EAST = 0, 2


def fuel_taxi_explainer(compose_config: Compose, *overrides: str) -> tuple[Explainer, Environment]:
    parts = build(compose_config("experiment=paper", "explainer=exact", "evaluation=none", *overrides))
    assert parts.env.model is not None
    policy = resolve(parts.env.model, parts.outcomes, {}, 0.99)
    solution = ExactSolution(parts.env, policy, parts.outcomes, horizon=30)
    return Explainer(solution, policy, parts.outcomes.legend), parts.env


@pytest.fixture
def plain(compose_config: Compose) -> Explanation:
    """South and east of Figure 2, each step alone."""
    return figure_2(*fuel_taxi_explainer(compose_config))


@pytest.fixture
def firsts(compose_config: Compose) -> Explanation:
    """South and east of Figure 2, with first occurrences."""
    return figure_2(*fuel_taxi_explainer(compose_config, "outcomes.first=[pickup,dropoff,refuel,failure]"))


def figure_2(explainer: Explainer, env: Environment) -> Explanation:
    state = env.state({"row": 2, "col": 0, "fuel": 6, "passenger": False})
    return explainer.explain(np.array([state, state]), np.array([SOUTH, EAST]))


def test_figure_2_without_first_occurrences_says_at_most(plain: Explanation) -> None:
    assert describe(plain, 0, "south") == (
        "South: pickup most likely at step 2 (81 % then), then dropoff at step 7 (53 %). "
        "Risk of failure 47 %, at step 6."
    )
    said = paragraph(plain[:1] - plain[1:], 0, "south", "east", chosen="south")
    assert "refuel about 4 times at steps 6 to 13" in said, said
    assert "refuel (+3.93, never against about 4 times)" in said
    assert "pickup mostly at steps 3 to 24 (at most 69 %)" in said


def test_figure_2_with_first_occurrences_says_how_likely_and_when(firsts: Explanation) -> None:
    assert describe(firsts, 0, "south") == (
        "South: pickup at step 2 or 3, then dropoff at step 7 (53 %). Risk of failure 47 %, at step 6."
    )
    assert "refuel about 8 times from step 6 until step 13 (53 %)" in describe(firsts, 1, "east")


def test_the_difference_is_that_of_the_returns_and_its_order_is_free(plain: Explanation) -> None:
    difference = (plain[:1] - plain[1:]).expected_return[0, -1]
    returns = plain.expected_return[:, -1]
    forth = compare(plain[:1] - plain[1:], 0, "south", "east")
    back = compare(plain[1:] - plain[:1], 0, "east", "south")
    values = f"({returns[0]:.2f} against {returns[1]:.2f})"
    assert forth.startswith(
        f"South is worth {difference:.2f} more than east within 30 steps {values}, because of "
    )
    assert back == forth


def test_a_choice_that_is_worth_less_is_not_praised(plain: Explanation) -> None:
    contrast = plain[:1] - plain[1:]
    said = compare(contrast, 0, "south", "east", chosen="east")
    assert said.startswith(
        "The agent's action does not have the highest expected return: south is worth 17.41 more "
        "than east within 30 steps (-29.81 against -47.22)"
    )
    assert "does not have the highest" not in compare(contrast, 0, "south", "east", chosen="south")
    third = paragraph(contrast, 0, "south", "east", chosen="south", best=("north", 5.0))
    assert third.startswith(
        "The agent's action does not have the highest expected return: north has a higher expected "
        "return (5.00) than south"
    )
    against = paragraph(contrast, 0, "south", "east", chosen="east")
    assert against.startswith(
        "The agent's action does not have the highest expected return: south is worth 17.41"
    )


def test_a_practical_tie_is_called_one(plain: Explanation) -> None:
    """Small is what is small beside all that is gained and lost, not beside what is left of that."""
    contrast = plain[:1] - plain[1:]
    said = compare(contrast, 0, "south", "east", tie=0.4)
    assert said.startswith("A practical tie within 30 steps: a return of -29.81 for south, -47.22 for east.")
    assert "tie" not in compare(contrast, 0, "south", "east", tie=0.3)
    assert "practical tie" in compare(plain - plain, 0, "a", "b")
    one, other = toy([[0.9, 0.0898], [0.0, 0.0102]]), toy([[0.9, 0.09], [0.0, 0.01]])
    assert abs(one.expected_return[0, -1]) < 1
    assert "practical tie" in compare(one - other, 0, "a", "b", chosen="b")
    assert "does not have the highest" in compare(
        one - toy([[0.8, 0.09], [0.0, 0.01]]), 0, "a", "b", chosen="b"
    )


def test_what_was_never_tried_is_said_to_be_unknown() -> None:
    known, unknown = toy([[0.5, 0.0], [0.2, 0.3]]), toy([[0.0, 0.0], [0.0, 0.0]], visits=0)
    never = "Jump was never tried in this state, so nothing is known about it"
    assert describe(unknown, 0, "jump") == f"{never}."
    assert compare(known - unknown, 0, "run", "jump") == f"{never}, and the two actions cannot be compared."
    assert paragraph(known - unknown, 0, "run", "jump").endswith(f" {never}.")


def test_a_future_that_becomes_unknown_is_not_compared() -> None:
    known = toy([[0.5, 0.0], [0.2, 0.3]])
    partly = toy([[0.5, 0.0], [0.0, 0.0]], running=[0.5, 0.2], unknown=[0.0, 0.3])
    assert "The future after jump is partly unknown from step 1 on: the probability of" in describe(
        partly, 0, "jump"
    )
    assert "partly unknown" not in describe(known, 0, "run")
    assert "cannot be compared" in compare(known - partly, 0, "run", "jump")
    assert "is worth" not in compare(known - partly, 0, "run", "jump")


@pytest.mark.parametrize(
    ("visits", "said"),
    [
        (1, "Not enough data: based on only 1 visit."),
        (29, "Based on only 29 visits"),
        (30, ""),
        (np.inf, ""),
    ],
)
def test_few_visits_are_said(visits: float, said: str) -> None:
    text = describe(toy([[0.5, 0.0], [0.2, 0.3]], visits=visits), 0, "run")
    assert said in text
    assert ("only" in text.lower()) == bool(said)


def test_what_the_horizon_cuts_off_is_said_where_it_could_change_the_verdict() -> None:
    fact, foil = toy([[0.5, 0.0], [0.5, 0.0]]), toy([[0.0, 0.5], [0.0, 0.5]])
    assert "not estimated" not in compare(fact - foil, 0, "run", "jump")
    lasting = toy([[0.0, 0.0], [0.5, 0.0]])
    said = compare(fact - lasting, 0, "run", "jump")
    assert "more than jump within 2 steps" in said
    assert said.endswith("The return after step 1 is not estimated, and could change this comparison.")


def ends_with(one: Explanation, value: float, spread: float = 0.0, unended: int = 0) -> Explanation:
    """The same, with a return after the horizon."""
    draws = value + np.linspace(-spread, spread, ENOUGH_DRAWS)[:, None]
    known = np.array([np.nan if unended else value])
    beyond = Beyond(known, draws, np.array([not spread]), np.array([unended]))
    return replace(one, draws=np.repeat(one.expected[None], ENOUGH_DRAWS, axis=0), beyond=beyond)


def test_what_comes_after_the_horizon_decides_where_it_is_estimated() -> None:
    fact, foil = toy([[0.3, 0.0], [0.2, 0.0]]), toy([[0.2, 0.0], [0.2, 0.0]])
    assert compare(fact - foil, 0, "run", "jump").startswith(
        "Run is worth 1.00 more than jump within 2 steps"
    )
    said = compare(ends_with(fact, 1.0) - ends_with(foil, 5.0, 0.5), 0, "run", "jump")
    assert said.startswith(
        "Jump is worth 3.00 (2.53 to 3.47) more than run (8.80 against 5.80), "
        "because of the return after step 1 (+4.00), despite goal (-1.00, 40 % against 50 %)."
    )
    assert said.endswith(
        "For the steps after step 1, the return of run includes +1.00 and the return of jump includes +5.00 "
        "(4.53 to 5.47)."
    )
    alike = compare(ends_with(fact, 5.0) - ends_with(foil, 5.0), 0, "run", "jump")
    assert alike.endswith("For the steps after step 1, both returns include +5.00.")
    wide = compare(ends_with(fact, 1.0) - ends_with(foil, 5.0, 20.0), 0, "run", "jump")
    assert wide.startswith(
        "The data do not tell which is worth more: a return of 5.80 for run, 8.80 for jump (a difference of"
    )
    endless = compare(ends_with(fact, 1.0) - ends_with(foil, 1.0, unended=1002), 0, "run", "jump")
    assert endless.endswith("because rollouts of 1002 steps do not end.")
    assert "within 2 steps" in endless


def test_probabilities_are_never_counts_below_one() -> None:
    """An event that may happen again has expected times, whose sum is the most that its probability is."""
    assert describe(toy([[0.0, 0.2], [0.0, 0.2]]), 0, "run") == "Run: risk of crash 40 %, at step 0 or 1."
    repeated = toy([[0.1, 0.3], [0.1, 0.3], [0.1, 0.3]], running=[1.0, 1.0, 1.0])
    assert "crash mostly at steps 0 to 2 (at most 90 %)" in describe(repeated, 0, "run")


def test_an_early_event_is_worth_more_than_the_same_later() -> None:
    said = compare(toy([[1.0, 0.0], [0.0, 0.0]]) - toy([[0.0, 0.0], [1.0, 0.0]]), 0, "run", "jump")
    assert "goal (+1.00, sooner: around step 0 against 1)" in said
    rare = compare(toy([[0.9, 0.001], [0.0, 0.0]]) - toy([[0.8, 0.0], [0.0, 0.001]]), 0, "run", "jump")
    assert "sooner" not in rare
    assert "later" not in rare


FIRSTS = ("first lift", "first turn", "first drop")


def at_steps(*steps: tuple[int, ...]) -> Explanation:
    """Three events, each as likely at each of its steps."""
    expected = np.zeros((12, 3))
    for column, its in enumerate(steps):
        expected[list(its), column] = 1 / len(its)
    return toy(expected.tolist(), names=FIRSTS, weights=(None, None, None), running=[1.0] * 12)


def test_milestones_are_in_the_order_of_time() -> None:
    said = describe(at_steps((7,), (2, 3), (4, 5, 6)), 0, "run")
    assert said == "Run: turn at step 2 or 3, then drop at steps 4 to 6, then lift at step 7."


def test_no_order_is_claimed_where_times_overlap() -> None:
    said = describe(at_steps((2, 3, 4), (3, 4, 5), (9,)), 0, "run")
    assert (
        said == "Run: in uncertain order, lift at steps 2 to 4 and turn at steps 3 to 5, then drop at step 9."
    )
    assert "uncertain order" not in describe(at_steps((2,), (2,), (9,)), 0, "run")


def test_a_plan_that_is_the_same_is_not_told_twice() -> None:
    one, late = at_steps((2,), (5,), (9,)), at_steps((2,), (5,), (10,))
    assert "Jump instead: the same. " in paragraph(one - one, 0, "run", "jump")
    assert "Jump instead: the same, but drop at step 10. " in paragraph(one - late, 0, "run", "jump")
    other = paragraph(one - at_steps((3,), (6,), (10,)), 0, "run", "jump")
    assert "Jump instead: lift at step 3, then turn at step 6" in other


def test_rare_ends_with_a_large_penalty_are_always_named() -> None:
    names = ("goal", "crash", "first goal", "first crash")
    weights = (10.0, -100.0, None, None)
    steps = [[0.0, 0.0, 0.0, 0.0], [0.996, 0.004, 0.996, 0.004]]
    rare = toy(steps, names=names, weights=weights)
    assert describe(rare, 0, "run") == "Run: goal at step 1. Risk of crash 0.4 %, at step 1."
    never = toy([[0.0] * 4, [1.0, 0.0, 1.0, 0.0]], names=names, weights=weights)
    assert describe(never, 0, "run") == "Run: goal at step 1. Crash is not expected."
    runs_on = toy([[0.0] * 4, [0.5, 0.0, 0.5, 0.0]], names=names, weights=weights, running=[1.0, 0.5])
    assert describe(runs_on, 0, "run") == "Run: goal at step 1 (50 %). Crash is not expected by step 1."


def test_what_follows_the_horizon_includes_its_risks() -> None:
    """A crash just after it is no small risk."""
    one = toy(
        [[0.1, 0.0, 0.1, 0.0]] * 2,
        names=("goal", "crash", "first goal", "first crash"),
        weights=(10.0, -100.0, None, None),
    )
    said = compare(ends_with(one, -90.0) - ends_with(one, -20.0), 0, "run", "jump")
    assert "For the steps after step 1, including any later crash, the return of run" in said


def test_what_repeats_is_not_said_to_happen_at_one_step() -> None:
    twice = toy(
        [[0.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
        names=("first coast", "coast"),
        weights=(None, None),
        running=[1.0] * 6,
    )
    assert describe(twice, 0, "run") == "Run: coast at steps 1 and 2."


def test_what_is_certain_at_every_step_is_counted_exactly_to_its_last_step() -> None:
    steps = np.zeros((30, 2))
    steps[6:19, 1], steps[6, 0] = 1, 1
    names = ("first fast", "fast")
    sure = toy(steps.tolist(), names=names, weights=(None, None), running=[1.0] * 30)
    assert describe(sure, 0, "run") == "Run: fast at steps 6 to 18."
    steps[18, 1] = 0.5
    unsure = toy(steps.tolist(), names=names, weights=(None, None), running=[1.0] * 30)
    assert "fast about 12 times from step 6 until step 17" in describe(unsure, 0, "run")


def test_a_small_chance_is_told_up_to_the_horizon() -> None:
    """It grows from below 0.1 % to 0.5 %."""
    chances = [[0.0, 0.0005]] + [[0.0, 0.0005]] * 9
    said = describe(toy(chances, running=[1.0] * 10), 0, "run")
    assert "0.5 %" in said
    assert "< 0.1 %" not in said


def test_a_wide_band_around_no_difference_is_no_tie() -> None:
    fact, foil = toy([[0.5, 0.0]]), toy([[0.501, 0.0]])
    draws = np.repeat(fact.expected[None], ENOUGH_DRAWS, axis=0)
    wide = draws.copy()
    wide[..., 0] += np.linspace(-0.4, 0.4, ENOUGH_DRAWS)[:, None, None]
    others = np.repeat(foil.expected[None], ENOUGH_DRAWS, axis=0)
    unsure = compare(replace(fact, draws=wide) - replace(foil, draws=others), 0, "run", "jump", tie=0.03)
    assert "the data do not tell which is worth more" in unsure.lower()
    sure = compare(replace(fact, draws=draws) - replace(foil, draws=others), 0, "run", "jump", tie=0.03)
    assert "a practical tie" in sure.lower()


def test_what_is_certain_after_both_is_inevitable() -> None:
    sure, later = toy([[0.0, 0.5], [0.0, 0.5]]), toy([[0.0, 0.0], [0.0, 1.0]])
    said = paragraph(sure - later, 0, "run", "jump")
    assert "Inevitable after both actions, if the agent then follows its policy: crash by step 1." in said
    every = paragraph(sure - later, 0, "run", "jump", inevitable=["crash"])
    assert (
        "Inevitable after every valid action, if the agent then follows its policy: crash by step 1." in every
    )
    assert inevitable(together([sure, later])) == ("crash",)
    unsure = toy([[0.0, 0.5], [0.1, 0.4]])
    assert "nevitable" not in paragraph(sure - unsure, 0, "run", "jump")
    assert inevitable(together([sure, unsure])) == ()
    goal = toy([[1.0, 0.0]])
    assert "nevitable" not in paragraph(goal - goal, 0, "run", "jump")
    seldom = toy([[0.0, 1.0]], visits=2)
    assert "nevitable" not in paragraph(seldom - seldom, 0, "run", "jump")


def test_noise_is_no_reason() -> None:
    """Of two outcomes that differ as much, only the one whose band excludes 0 is a reason."""
    fact, foil = toy([[0.5, 0.05]]), toy([[0.3, 0.07]])
    draws = np.repeat(fact.expected[None], ENOUGH_DRAWS, axis=0)
    noisy = draws.copy()
    noisy[..., 1] += np.linspace(-0.03, 0.03, ENOUGH_DRAWS)[:, None, None]
    others = np.repeat(foil.expected[None], ENOUGH_DRAWS, axis=0)
    settled = compare(replace(fact, draws=draws) - replace(foil, draws=others), 0, "run", "jump")
    assert "crash" in settled
    said = compare(replace(fact, draws=noisy) - replace(foil, draws=others), 0, "run", "jump")
    assert "because of goal" in said
    assert "crash" not in said


def test_rollouts_tell_when_events_first_happen_that_nobody_asked_for() -> None:
    """Two steps in a row of one event in every rollout, at one of two times."""
    rollouts = np.zeros((40, 1, 6, 2), np.float32)
    rollouts[:20, 0, 1:3, 0] = 1
    rollouts[20:, 0, 2:4, 0] = 1
    one = toy(rollouts.mean(axis=0)[0].tolist(), weights=(None, None), running=[1.0] * 6)
    rolled = replace(one, rollouts=rollouts, support=np.array([40.0]))
    assert describe(rolled, 0, "run") == "Run: goal about twice from step 1 until step 3."
    assert "goal most likely at step 2 (100 % then)" in describe(one, 0, "run")


def test_without_rewards_the_largest_differences_are_said() -> None:
    weights = (None, None)
    fact, foil = (toy([[p, 0.1], [0.0, 0.1]], weights=weights) for p in (0.6, 0.1))
    said = compare(fact - foil, 0, "run", "jump")
    assert said == "Run differs from jump most in goal (60 % against 10 %)."
    assert "do not differ" in compare(fact - fact, 0, "run", "jump")


def test_a_first_occurrence_alone_is_spoken_of_by_its_event() -> None:
    alone = toy(
        [[0.3, 0.0], [0.3, 0.0]], names=("first landing", "crash"), weights=(None, None), running=[1, 1]
    )
    other = toy(
        [[0.0, 0.0], [0.3, 0.0]], names=("first landing", "crash"), weights=(None, None), running=[1, 1]
    )
    assert "landing" in describe(alone, 0, "run")
    assert "first" not in describe(alone, 0, "run")
    assert "landing (60 % against 30 %)" in compare(alone - other, 0, "run", "jump")


def test_what_if_never_speaks_for_the_agent(plain: Explanation) -> None:
    contrast = plain[:1] - plain[1:]
    assert overtakes(contrast, 0, "refuel", "south", "east") == (
        "With the rest of the policy unchanged, east overtakes south at a refuel reward of 3.427 or more "
        "(now a penalty of 1)."
    )
    assert overtakes(plain[1:] - plain[:1], 0, "refuel", "east", "south") == overtakes(
        contrast, 0, "refuel", "south", "east"
    )
    assert "at any reward of invalid" in overtakes(contrast, 0, "invalid", "south", "east")


@given(st.floats(0, 1))
def test_percent_is_0_or_100_only_where_it_is_certain(probability: float) -> None:
    said = percent(probability)
    if said in ("0 %", "100 %"):
        assert probability == pytest.approx(0 if said == "0 %" else 1, abs=1e-8)
    else:
        shown = float(re.sub(r"[^\d.]", "", said))
        assert abs(100 * probability - shown) <= (1 if said[0] in "<>" else 0.5 + 1e-9)


@given(st.lists(st.tuples(st.floats(0, 0.3), st.floats(0, 0.3)), min_size=1, max_size=6))
def test_every_future_can_be_told(steps: list[tuple[float, float]]) -> None:
    expected = np.array(steps) / len(steps)
    one, other = toy(expected.tolist()), toy(expected[::-1].tolist())
    said = paragraph(one - other, 0, "run", "jump", chosen="run")
    assert "Run: " in said
    assert "Jump instead: " in said
    assert not re.search(r"0\.\d+ times", said)
    worth = (one - other).expected_return[0, -1]
    if "practical tie" not in said and abs(worth) > 0.01:
        assert said.startswith("The agent's action does not have the highest expected return") == (worth < 0)


def test_the_narrator_says_of_many_what_is_said_of_one(compose_config: Compose) -> None:
    explainer, env = fuel_taxi_explainer(compose_config, "outcomes.first=[pickup,dropoff,refuel,failure]")
    assert env.model is not None
    states = np.flatnonzero(env.model.start)
    fact = explainer.explain(states)
    foil = explainer.explain(states, env.mask(states).argmax(axis=1))
    contrast = fact - foil
    narrator = ContrastNarrator(contrast)
    said = [narrator.paragraph(row, "south", "east", chosen="south") for row in range(len(states))]
    for row in range(0, len(states), 50):
        assert said[row] == paragraph(contrast, row, "south", "east", chosen="south")
        assert Narrator(fact).describe(row, "south") in said[row]


def test_what_happens_once_is_said_however_short_the_future() -> None:
    assert (
        describe(toy([[0.9, 0.1]]), 0, "run") == "Run: goal at step 0 (90 %). Risk of crash 10 %, at step 0."
    )


def test_what_fills_the_steps_is_said_only_where_there_is_nothing_else() -> None:
    busy = [[1.0, 0.0]] * 5
    assert describe(toy(busy, running=[1.0] * 5), 0, "run") == "Run: goal at every step."
    seldom = [[0.97, 0.0]] * 5
    assert describe(toy(seldom, running=[1.0] * 5), 0, "run") == "Run: goal at nearly every step."
    assert "goal" not in describe(toy([*busy, [0.0, 1.0]], running=[1.0] * 5 + [0.0]), 0, "run")


def test_parts_of_a_reward_that_are_no_events_are_said_by_what_they_add(compose_config: Compose) -> None:
    explainer, env = fuel_taxi_explainer(compose_config, "outcomes=fuel_taxi_components", "~outcomes.first")
    explanation = figure_2(explainer, env)
    said = describe(explanation, 0, "south")
    for name, added in zip(explanation.component_names, explanation.component_returns[0, -1], strict=True):
        assert f"{name} adds {added:.2f} to the return" in said
    assert (
        "mishap" not in compare(explanation[:1] - explanation[1:], 0, "south", "east").split("; against")[0]
    )
