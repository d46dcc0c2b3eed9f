"""That another action is favoured is said only where the band of the difference excludes 0."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.explanations import toy
from tests.support.sentences import compare
from tpd.answers.sentences.formatting import bound_in_words
from tpd.answers.sentences.overtakes import overtakes
from tpd.answers.what_if import overtaking
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation


def drawn(goal: float, spread: float) -> Explanation:
    """One step, whose goal is that likely, give or take."""
    one = toy([[goal, 0.0]])
    draws = np.repeat(one.expected[None], ENOUGH_DRAWS, axis=0)
    draws[..., 0] += np.linspace(-spread, spread, ENOUGH_DRAWS)[:, None, None]
    return replace(one, draws=draws)


@pytest.mark.parametrize(("spread", "settled"), [(0.01, True), (0.4, False)])
def test_sentences_favour_only_what_is_settled(spread: float, settled: bool) -> None:
    contrast = drawn(0.5, 0.0) - drawn(0.3, spread)
    assert contrast.settled[0] == settled
    said = compare(contrast, 0, "run", "jump", chosen="jump")
    assert ("run is worth" in said) == settled
    unsettled = (
        "The data do not tell which is worth more within 1 step: a return of 5.00 for run, 3.00 for jump"
    )
    assert (unsettled in said) == (not settled)
    assert (unsettled in compare(contrast, 0, "run", "jump", chosen="run")) == (not settled)


@pytest.mark.parametrize(("spread", "settled"), [(0.01, True), (0.4, False)])
def test_a_reward_for_overtaking_is_by_point_estimates_where_returns_are_not_settled(
    spread: float, settled: bool
) -> None:
    fact = replace(drawn(0.5, 0.0), expected=np.array([[[0.5, 0.01]]]))
    fact = replace(fact, draws=np.add(fact.samples, np.array([0.0, 0.01])))
    said = overtakes(fact - drawn(0.3, spread), 0, "crash", "run", "jump")
    assert "overtakes" in said
    assert said.startswith("By the point estimates, while the data do not tell") == (not settled)


def test_rollouts_that_never_saw_an_event_do_not_say_that_no_reward_of_it_matters() -> None:
    runs, foils = (toy([[goal, 0.0]]) for goal in (0.5, 0.3))
    seen, others = np.zeros((200, 1, 1, 2)), np.zeros((200, 1, 1, 2))
    seen[:100, ..., 0], others[:60, ..., 0] = 1, 1
    often = np.full(1, 200.0)
    contrast = replace(runs, rollouts=seen, support=often) - replace(foils, rollouts=others, support=often)
    said = overtakes(contrast, 0, "crash", "run", "jump")
    assert said.startswith("The data do not say at which reward of crash")
    infinite = np.full(1, np.inf)
    exact = replace(runs, support=infinite) - replace(foils, support=infinite)
    assert "does not overtake run within 1 step at any reward of crash" in overtakes(
        exact, 0, "crash", "run", "jump"
    )


def test_without_bands_counts_are_settled_and_guesses_of_networks_are_not() -> None:
    fact, foil = toy([[0.5, 0.0]]), toy([[0.3, 0.0]])
    assert (fact - foil).settled.all()
    seen = np.zeros((1, 2))
    fact, foil = (replace(one, observations=seen, support=np.array([50.0])) for one in (fact, foil))
    assert not (fact - foil).settled.any()
    assert "The data do not tell which is worth more" in compare(fact - foil, 0, "run", "jump", "jump")
    assert fact.obtained == "learned, but not evaluated"


def test_a_bound_that_says_nothing_is_left_out() -> None:
    assert bound_in_words(405, 4.5) == "at most ±405"
    assert bound_in_words(4.4e9, 200) == ""
    assert bound_in_words(float("inf"), 1) == "without bound"


def test_a_reward_that_is_0_but_for_rounding_is_0() -> None:
    """0.1 + 0.2 - 0.3 is not 0 in floating point."""
    fact = toy([[0.1 + 0.2, 0.1]], weights=(1.0, -1e-17))
    foil = toy([[0.3, 0.3]], weights=(1.0, -1e-17))
    at = overtaking(fact - foil, 0, "crash")
    assert at == 0
    assert "e-" not in overtakes(fact - foil, 0, "crash", "run", "jump").split(" (now")[0]
