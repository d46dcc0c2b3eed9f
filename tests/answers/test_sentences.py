"""Sentences: every number is that of the explanation, and nothing is said that does not follow from it."""

import re
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import Compose
from tests.support.explanations import toy
from tpd.answers.resolve import resolve
from tpd.answers.sentences.compare import ContrastNarrator, compare, overtakes, paragraph
from tpd.answers.sentences.describe import Narrator, describe
from tpd.answers.sentences.formatting import percent
from tpd.core.explanation import Explanation
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


def test_figure_2_without_first_occurrences_says_when_but_not_by_when(plain: Explanation) -> None:
    assert describe(plain, 0, "south") == (
        "South: pickup most likely at step 2 (81 %), dropoff at step 7 (53 %); 47 % risk of failure."
    )
    said = paragraph(plain[:1] - plain[1:], 0, "south", "east", chosen="south")
    assert not re.search(r"\b(by step|within)\b", said)
    assert "refuel (+3.93: never against 4.3 times" in said


def test_figure_2_with_first_occurrences_says_by_when(firsts: Explanation) -> None:
    assert describe(firsts, 0, "south") == (
        "South: pickup most likely at step 2 (81 %; > 99 % by step 4), dropoff at step 7 (53 %); "
        "47 % risk of failure by step 6."
    )
    assert "refuel by step 6: 53 %" in describe(firsts, 1, "east")
    failed = np.cumsum(firsts.expected[0, :, firsts.legend.names.index("first failure")])
    assert percent(failed[6]) == percent(failed[-1]) != percent(failed[5])


def test_the_difference_is_that_of_the_returns_and_its_order_is_free(plain: Explanation) -> None:
    difference = (plain[:1] - plain[1:]).expected_return[0, -1]
    returns = plain.expected_return[:, -1]
    forth = compare(plain[:1] - plain[1:], 0, "south", "east")
    back = compare(plain[1:] - plain[:1], 0, "east", "south")
    values = f"({returns[0]:.2f} against {returns[1]:.2f})"
    assert forth.startswith(f"South is worth {difference:.2f} more than east {values}, mainly because of ")
    reasons = forth.split(". The episode")[0]
    assert back.startswith(reasons)
    assert "(south) and 10 % (east)" in forth
    assert "(east) and 0 % (south)" in back


def test_a_choice_that_is_worth_less_is_not_praised(plain: Explanation) -> None:
    contrast = plain[:1] - plain[1:]
    said = compare(contrast, 0, "south", "east", chosen="east")
    assert said.startswith(
        "The explained returns do not support this choice: they favour south (-29.81) over east (-47.22)"
    )
    assert "do not support" not in compare(contrast, 0, "south", "east", chosen="south")
    third = paragraph(contrast, 0, "south", "east", chosen="south", best=("north", 5.0))
    assert third.endswith("they favour north (5.00) over south (-29.81).")


def test_ties_are_about_equal(plain: Explanation) -> None:
    contrast = plain[:1] - plain[1:]
    assert "about the same (-29.81 and -47.22)" in compare(contrast, 0, "south", "east", tie=0.4)
    assert "about the same" not in compare(contrast, 0, "south", "east", tie=0.3)
    assert "about the same" in compare(plain - plain, 0, "a", "b")


def test_what_was_never_tried_is_said_to_be_unknown() -> None:
    known, unknown = toy([[0.5, 0.0], [0.2, 0.3]]), toy([[0.0, 0.0], [0.0, 0.0]], visits=0)
    never = "Jump was never tried here, so nothing is known of it"
    assert describe(unknown, 0, "jump") == f"{never}."
    assert compare(known - unknown, 0, "run", "jump") == f"{never}, and the two cannot be compared."
    assert paragraph(known - unknown, 0, "run", "jump").endswith(f" {never}.")


def test_a_future_that_becomes_unknown_is_not_compared() -> None:
    known = toy([[0.5, 0.0], [0.2, 0.3]])
    partly = toy([[0.5, 0.0], [0.0, 0.0]], running=[0.5, 0.2], unknown=[0.0, 0.3])
    assert "From step 1 on the future after jump is partly unknown: with 30 %" in describe(partly, 0, "jump")
    assert "From step" not in describe(known, 0, "run")
    assert "cannot be compared" in compare(known - partly, 0, "run", "jump")
    assert "is worth" not in compare(known - partly, 0, "run", "jump")


@pytest.mark.parametrize(
    ("visits", "said"),
    [
        (1, "Not enough data: only 1 visit stands behind this."),
        (29, "Only 29 visits stand"),
        (30, ""),
        (np.inf, ""),
    ],
)
def test_few_visits_are_said(visits: float, said: str) -> None:
    text = describe(toy([[0.5, 0.0], [0.2, 0.3]], visits=visits), 0, "run")
    assert said in text
    assert ("only" in text.lower()) == bool(said)


def test_what_the_horizon_cuts_off_is_said_where_it_could_outweigh_the_difference() -> None:
    fact, foil = toy([[0.5, 0.0], [0.5, 0.0]]), toy([[0.0, 0.5], [0.0, 0.5]])
    assert "runs on" not in compare(fact - foil, 0, "run", "jump")
    lasting = toy([[0.0, 0.0], [0.5, 0.0]])
    bound = lasting.remainder.bound[0]
    said = compare(fact - lasting, 0, "run", "jump")
    assert f"with 0 % (run) and 50 % (jump): what comes then is worth at most ±{bound:.3g}" in said
    unbounded = toy([[0.0, 0.0], [0.5, 0.0]], discount=1.0)
    said = compare(toy([[0.5, 0.0], [0.4, 0.0]], discount=1.0) - unbounded, 0, "run", "jump")
    assert "is worth without bound" in said


def test_a_risk_is_only_what_ends_the_episode() -> None:
    """An event that can happen again has expected times, whose sum is no probability."""
    assert describe(toy([[0.0, 0.2], [0.0, 0.2]]), 0, "run") == "Run: 40 % risk of crash."
    repeated = toy([[0.1, 0.3], [0.1, 0.3], [0.1, 0.3]], running=[1.0, 1.0, 1.0])
    assert "crash expected 0.90 times" in describe(repeated, 0, "run")


def test_an_early_event_is_worth_more_than_the_same_later() -> None:
    said = compare(toy([[1.0, 0.0], [0.0, 0.0]]) - toy([[0.0, 0.0], [1.0, 0.0]]), 0, "run", "jump")
    assert "goal (+1.00: as often, but sooner, mostly at step 0)" in said


def test_without_rewards_the_largest_differences_are_said() -> None:
    weights = (None, None)
    fact, foil = (toy([[p, 0.1], [0.0, 0.1]], weights=weights) for p in (0.6, 0.1))
    said = compare(fact - foil, 0, "run", "jump")
    assert said == "Run differs from jump most in goal (60 % against 10 %, mostly at step 0)."
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
    assert "landing (60 % against 30 % within 2 steps" in compare(alone - other, 0, "run", "jump")


def test_what_if_never_speaks_for_the_agent(plain: Explanation) -> None:
    contrast = plain[:1] - plain[1:]
    assert overtakes(contrast, 0, "refuel", "south", "east") == (
        "With the rest of the policy unchanged, east overtakes south at a refuel reward of 3.427 "
        "(now a penalty of 1)."
    )
    assert overtakes(plain[1:] - plain[:1], 0, "refuel", "east", "south") == overtakes(
        contrast, 0, "refuel", "south", "east"
    )
    assert "at no reward of invalid" in overtakes(contrast, 0, "invalid", "south", "east")


@given(st.floats(0, 1))
def test_percent_is_0_or_100_only_where_it_is_certain(probability: float) -> None:
    said = percent(probability)
    if said in ("0 %", "100 %"):
        assert probability == pytest.approx(0 if said == "0 %" else 1, abs=1e-8)
    else:
        shown = int(re.sub(r"\D", "", said))
        assert abs(100 * probability - shown) <= (1 if said[0] in "<>" else 0.5 + 1e-9)


@given(st.lists(st.tuples(st.floats(0, 0.3), st.floats(0, 0.3)), min_size=1, max_size=6))
def test_every_future_can_be_told(steps: list[tuple[float, float]]) -> None:
    expected = np.array(steps) / len(steps)
    one, other = toy(expected.tolist()), toy(expected[::-1].tolist())
    said = paragraph(one - other, 0, "run", "jump", chosen="run")
    assert said.startswith("Run: ")
    assert "Jump instead: " in said
    worth = (one - other).expected_return[0, -1]
    if abs(worth) > 0.01:
        assert ("do not support" in said) == (worth < 0)


def test_the_narrator_says_of_many_what_is_said_of_one_and_quickly(compose_config: Compose) -> None:
    explainer, env = fuel_taxi_explainer(compose_config, "outcomes.first=[pickup,dropoff,refuel,failure]")
    assert env.model is not None
    states = np.flatnonzero(env.model.start)
    fact = explainer.explain(states)
    foil = explainer.explain(states, env.mask(states).argmax(axis=1))
    contrast = fact - foil
    start = time.process_time()
    narrator = ContrastNarrator(contrast)
    said = [narrator.paragraph(row, "south", "east", chosen="south") for row in range(len(states))]
    assert (time.process_time() - start) / len(states) < 0.003  # ten times what is wanted: machines differ
    for row in range(0, len(states), 50):
        assert said[row] == paragraph(contrast, row, "south", "east", chosen="south")
        assert said[row].startswith(Narrator(fact).describe(row, "south"))


def test_what_happens_once_is_said_however_short_the_future() -> None:
    assert (
        describe(toy([[0.9, 0.1]]), 0, "run") == "Run: goal most likely at step 0 (90 %); 10 % risk of crash."
    )


def test_what_fills_the_steps_is_said_only_where_there_is_nothing_else() -> None:
    busy = [[1.0, 0.0]] * 5
    assert describe(toy(busy, running=[1.0] * 5), 0, "run") == "Run: goal expected 5.0 times."
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
