"""Outcomes say what they are, and are refused where they are not."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from hydra.utils import instantiate

from tests.support import small_mdp
from tpd.core.outcomes import Outcome, OutcomeError, OutcomeSet, component, event, reward
from tpd.core.types import Array, Transitions


@pytest.fixture
def transitions() -> Transitions:
    model = small_mdp.environment().model
    assert model is not None
    return model.transitions()[0]


def test_a_partition_with_one_reward_each_is_complete(transitions: Transitions) -> None:
    outcomes = small_mdp.outcomes()
    assert outcomes.legend.partition == ("odd", "even")
    assert outcomes.legend.reward_bound is not None
    outcome, continuation = outcomes.observe(transitions)
    assert outcome.shape == continuation.shape == (len(transitions), 4)
    assert (outcome[:, 0] + outcome[:, 1] == 1).all()


def test_the_last_column_says_whether_the_episode_terminates(transitions: Transitions) -> None:
    outcome, _ = small_mdp.outcomes().observe(transitions)
    assert (outcome[:, -1] == transitions.terminated).all()


def test_the_future_ends_with_the_episode_or_with_a_first_occurrence(transitions: Transitions) -> None:
    outcome, continuation = small_mdp.outcomes().observe(transitions)
    alive = ~transitions.terminated
    assert (continuation[:, 0] == alive).all()
    assert (continuation[:, 2] == alive * (1 - outcome[:, 2])).all()
    assert (continuation[:, 2] < continuation[:, 0]).any()


def test_two_events_at_once_are_refused_with_the_transition(transitions: Transitions) -> None:
    always = event("always", lambda t: np.ones(len(t)))
    overlapping = OutcomeSet([event("odd", small_mdp.odd), always], partition=True)
    with pytest.raises(OutcomeError, match=r"\['odd', 'always'\].*observation=\d+, action=\d+"):
        overlapping.observe(transitions)


def test_a_transition_without_event_is_refused(transitions: Transitions) -> None:
    with pytest.raises(OutcomeError, match=r"no event in one transition.*next_observation="):
        OutcomeSet([event("odd", small_mdp.odd)], partition=True).observe(transitions)


def test_an_event_with_two_rewards_is_refused(transitions: Transitions) -> None:
    rewards = transitions.reward.copy()
    row = int(np.flatnonzero(small_mdp.odd(transitions))[3])
    rewards[row] = 0.5
    with pytest.raises(OutcomeError, match=r"odd.* should give 1, but the reward is 0.5; .* \(observation="):
        small_mdp.outcomes().observe(replace(transitions, reward=rewards))


def test_events_may_overlap_where_nothing_is_claimed(transitions: Transitions) -> None:
    always = event("always", lambda t: np.ones(len(t)))
    outcomes = OutcomeSet([event("odd", small_mdp.odd), always])
    assert outcomes.legend.partition == ()
    outcomes.observe(transitions)


@pytest.mark.parametrize("value", [1.5, -0.1, np.nan])
def test_outcomes_beyond_their_bounds_are_refused(transitions: Transitions, value: float) -> None:
    def function(t: Transitions) -> Array:
        values = np.zeros(len(t))
        values[2] = value
        return values

    with pytest.raises(OutcomeError, match=r"'speed'.*outside \[0, 1\].*observation="):
        OutcomeSet([Outcome("speed", function, 0, 1)]).observe(transitions)


def test_an_event_is_zero_or_one(transitions: Transitions) -> None:
    with pytest.raises(OutcomeError, match=r"0\.5, outside \{0, 1\}"):
        OutcomeSet([event("half", lambda t: np.full(len(t), 0.5))]).observe(transitions)


def test_wrong_shape_is_refused(transitions: Transitions) -> None:
    with pytest.raises(OutcomeError, match=r"shape \(1,\)"):
        OutcomeSet([event("one", lambda t: np.ones(1))]).observe(transitions)


def test_reward_components_must_add_up(transitions: Transitions) -> None:
    half = component("half", lambda t: t.reward / 2, 0, 1, weight=2.0)
    assert OutcomeSet([half], accounts_for_reward=True).legend.reward_bound == 2.0
    OutcomeSet([half], accounts_for_reward=True).observe(transitions)
    wrong = component("half", lambda t: t.reward / 2, 0, 1, weight=1.0)
    with pytest.raises(OutcomeError, match="do not account for the reward"):
        OutcomeSet([wrong], accounts_for_reward=True).observe(transitions)


def test_the_reward_is_an_outcome(transitions: Transitions) -> None:
    outcomes = OutcomeSet([reward(0, 1)], accounts_for_reward=True)
    assert (outcomes.observe(transitions).outcome[:, 0] == transitions.reward).all()


def test_info_that_the_source_does_not_have_is_named(transitions: Transitions) -> None:
    needy = event("fast", lambda t: t.info["speed"] > 1, info_keys=["speed"])
    with pytest.raises(OutcomeError, match=r"'fast' reads info\['speed'\]"):
        OutcomeSet([needy]).observe(transitions)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OutcomeSet([]), "at least one"),
        (lambda: OutcomeSet([event("a", small_mdp.odd), event("a", small_mdp.even)]), "names must be unique"),
        (lambda: OutcomeSet([reward(0, 1)], partition=True), "needs events"),
        (lambda: OutcomeSet([event("a", small_mdp.odd)], True, True), "'a' needs a reward"),
        (lambda: Outcome("a", small_mdp.odd, 1, 0), "bounds"),
        (lambda: Outcome("a", small_mdp.odd, 0, float("inf")), "finite"),
    ],
)
def test_sets_that_cannot_be_are_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(OutcomeError, match=message):
        make()


def test_the_first_occurrence_of_a_named_event_is_asked_for_as_well(transitions: Transitions) -> None:
    named = OutcomeSet([event("odd", small_mdp.odd, 1.0), event("even", small_mdp.even, 0.0)], first=["odd"])
    assert named.legend == OutcomeSet([*named.outcomes[:2], event("odd", small_mdp.odd, first=True)]).legend
    np.testing.assert_array_equal(
        named.observe(transitions).continuation[:, 2],
        small_mdp.outcomes().observe(transitions).continuation[:, 2],
    )
    with pytest.raises(OutcomeError, match="there is no event 'luck'; known events: odd"):
        OutcomeSet([event("odd", small_mdp.odd)], first=["luck"])
    with pytest.raises(OutcomeError, match="there is no event 'reward'; known events: none"):
        OutcomeSet([reward(0, 1)], first=["reward"])


def at_least(t: Transitions, low: float = 1) -> Array:
    return np.asarray(t.reward >= low)


def test_functions_of_a_config_are_called_without_hydras_wrapper(transitions: Transitions) -> None:
    """It takes about a millisecond at every call."""
    plain, bound = (
        instantiate({"_target_": f"{__name__}.at_least", "_partial_": True, **arguments})
        for arguments in ({}, {"low": -99})
    )
    assert event("much", plain).function is at_least
    assert 0 < event("much", plain).values(transitions).sum() < len(transitions)
    assert event("any", bound).values(transitions).all()


def test_simulated_outcomes_are_brought_within_what_is_declared(transitions: Transitions) -> None:
    """A learned model makes transitions of which the claims of a set hold only nearly."""
    wrong = replace(transitions, reward=transitions.reward + 0.3)
    claims = OutcomeSet([event("odd", small_mdp.odd), component("rest", lambda t: t.reward * 9, -1, 1)], True)
    with pytest.raises(OutcomeError, match="no event in one transition"):
        OutcomeSet([event("odd", small_mdp.odd)], partition=True).observe(wrong)
    simulated = claims.simulated(wrong)
    assert (simulated[:, 0] == 1).all()
    assert np.abs(simulated[:, 1]).max() == 1
    with pytest.raises(OutcomeError, match="outcome 'lost' is NaN"):
        OutcomeSet([component("lost", lambda t: t.reward * np.nan, -1, 1)]).simulated(wrong)


def test_a_function_that_forces_its_way_changes_nothing_for_others() -> None:
    """Flags can be set, and torch does not heed them."""

    def by_flags(transitions: Transitions) -> Array:
        transitions.reward.setflags(write=True)
        transitions.reward[:] = 0
        return np.ones(len(transitions))

    def by_torch(transitions: Transitions) -> Array:
        torch.from_numpy(transitions.reward).zero_()
        return np.ones(len(transitions))

    numbers, ends = np.arange(1, 4), np.zeros(3, dtype=bool)
    transitions = Transitions(numbers, numbers, numbers, numbers * 1.0, ends, ends)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns that the array is not writable
        for forces in (by_flags, by_torch):
            event("forces", forces).values(transitions)
            assert transitions.reward.tolist() == [1, 2, 3]


@pytest.mark.parametrize("column", ["observation", "action", "next_observation", "reward", "terminated"])
def test_a_function_that_writes_into_its_batch_is_refused_by_name(column: str) -> None:
    def careless(transitions: Transitions) -> Array:
        getattr(transitions, column)[0] = 0
        return np.ones(len(transitions))

    numbers, ends = np.arange(1, 4), np.zeros(3, dtype=bool)
    transitions = Transitions(numbers, numbers.copy(), numbers.copy(), numbers * 1.0, ~ends, ends)
    kept = getattr(transitions, column).copy()
    for look in (OutcomeSet([event("careless", careless)]).observe, event("careless", careless).simulated):
        with pytest.raises(OutcomeError, match=r"outcome 'careless' failed: .*read-only"):
            look(transitions)
    np.testing.assert_array_equal(getattr(transitions, column), kept)
    getattr(transitions, column)[0] = 0  # others may


def test_no_function_changes_what_another_sees() -> None:
    def careless(transitions: Transitions) -> Array:
        transitions.info["k"] = np.full(3, 9.0)  # type: ignore[index]
        return np.ones(3)

    def reshaping(transitions: Transitions) -> Array:
        transitions.observation.shape = (3, 1)
        return np.ones(3)

    numbers, ends = np.arange(3), np.zeros(3, dtype=bool)
    transitions = Transitions(numbers, numbers, numbers, numbers * 1.0, ~ends, ends, info={"k": numbers})
    with pytest.raises(OutcomeError, match="outcome 'careless' failed"):
        OutcomeSet([event("careless", careless)]).observe(transitions)
    flat = event("flat", lambda t: np.array([t.observation.ndim == 1] * 3))
    both = OutcomeSet([event("reshaping", reshaping), flat]).observe(transitions)
    assert (both.outcome[:, 1] == 1).all()


def test_a_function_that_ends_the_program_is_an_error_of_its_event(transitions: Transitions) -> None:
    def leave(t: Transitions) -> Array:
        sys.exit("enough")

    with pytest.raises(OutcomeError, match="outcome 'leaves' failed: SystemExit: enough"):
        event("leaves", leave).values(transitions)
