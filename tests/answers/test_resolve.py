"""Solving anew: the Bellman equation holds, and what was counted is solved as what is known."""

import numpy as np
import pytest

from tests.support import small_mdp
from tpd.answers.resolve import resolve
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import FloatArray, IntArray
from tpd.envs import Environment
from tpd.envs.fuel_taxi.rules import REWARDS, Event
from tpd.envs.tabular import TabularModel
from tpd.predictors.replayed.counts import Counts, counted_model
from tpd.run.parts import Parts

ALL = np.arange(small_mdp.NUM_STATES)


def small_model() -> TabularModel:
    model = small_mdp.environment().model
    assert model is not None
    return model


def bellman(values: FloatArray, model: TabularModel, reward: FloatArray, discount: float) -> FloatArray:
    """[state, action]: the right side of the equation, for rewards [state, action, branch]."""
    v = np.where(model.mask, values, -np.inf).max(axis=1)
    ahead = reward + discount * np.where(model.terminated, 0, v[model.next_state])
    return np.asarray((model.probability * ahead).sum(axis=2))


def test_the_taxi_is_solved_to_the_last_digits(paper: Parts, fuel_taxi: Environment) -> None:
    model = fuel_taxi.model
    assert model is not None
    states = np.arange(model.num_states)
    policy = resolve(model, paper.outcomes, {}, 0.99)
    values = policy.action_values(states)
    assert values is not None
    np.testing.assert_allclose(values, bellman(values, model, model.reward, 0.99), atol=1e-10)
    assert model.mask[states, policy.action(states)].all()


def test_other_rewards_are_solved_as_if_the_world_gave_them(paper: Parts, fuel_taxi: Environment) -> None:
    model = fuel_taxi.model
    assert model is not None
    policy = resolve(model, paper.outcomes, {"failure": -7.0}, 0.99)
    values = policy.action_values(np.arange(model.num_states))
    assert values is not None
    failing = model.terminated & (model.reward == REWARDS[Event.FAILURE])
    reward = np.where(failing, -7.0, model.reward)
    np.testing.assert_allclose(values, bellman(values, model, reward, 0.99), atol=1e-10)
    before = resolve(model, paper.outcomes, {}, 0.99)
    assert (policy.action(np.arange(model.num_states)) != before.action(np.arange(model.num_states))).any()


def test_a_model_counted_from_every_transition_is_solved_as_the_model() -> None:
    """Counts in proportion to the probabilities stand for the model itself."""
    model, outcomes = small_model(), small_mdp.outcomes()
    transitions, probability = model.transitions()
    repeated = np.repeat(np.arange(len(transitions)), np.round(1000 * probability).astype(int))
    counted = counted_model(counts_of(model, outcomes, repeated).edges, outcomes, *model.mask.shape)
    np.testing.assert_allclose(counted.probability.sum(axis=2), 1)
    assert counted.mask.all()
    for rewards in ({}, {"odd": -1.0}):
        one, other = (resolve(m, outcomes, rewards, 0.9).action_values(ALL) for m in (model, counted))
        assert one is not None
        assert other is not None
        np.testing.assert_allclose(one, other, atol=0.05)  # probabilities are rounded to a thousandth


def test_what_was_never_tried_is_not_valid_and_not_sought() -> None:
    model, outcomes = small_model(), small_mdp.outcomes()
    transitions, _ = model.transitions()
    best = resolve(model, outcomes, {}, 0.9).action(ALL)
    tried = np.flatnonzero(
        (transitions.action != best[transitions.observation]) & (transitions.observation != 5)
    )
    counted = counted_model(counts_of(model, outcomes, tried).edges, outcomes, *model.mask.shape)
    assert not counted.mask[ALL[:5], best[:5]].any()
    assert counted.mask[5].all()
    policy = resolve(counted, outcomes, {}, 0.9)
    assert (policy.action(ALL[:5]) != best[:5]).all()
    values = policy.action_values(ALL)
    assert values is not None
    assert values[5] == pytest.approx(-10)  # nothing was tried there: as bad as the rewards allow


def counts_of(model: TabularModel, outcomes: OutcomeSet, rows: IntArray) -> Counts:
    transitions = model.transitions()[0][rows]
    observed = outcomes.observe(transitions)
    counts = Counts(outcomes.width)
    pair = transitions.observation * model.num_actions + transitions.action
    counts.add(pair, transitions.next_observation, observed.outcome, observed.continuation)
    return counts


def test_what_cannot_be_solved_is_refused() -> None:
    model, outcomes = small_model(), small_mdp.outcomes()
    with pytest.raises(ValueError, match="for a discount below 1"):
        resolve(model, outcomes, {}, 1.0)
    with pytest.raises(ValueError, match="'first odd' has no reward"):
        resolve(model, outcomes, {"first odd": 1.0}, 0.9)
    with pytest.raises(ValueError, match="do not account for the reward"):
        resolve(model, OutcomeSet([event("odd", small_mdp.odd)]), {}, 0.9)
    with pytest.raises(ValueError, match="do not account for the reward"):
        counted_model(Counts(2).edges, OutcomeSet([event("odd", small_mdp.odd)]), 6, 3)
    reads_info = OutcomeSet(
        [event("odd", small_mdp.odd, 1.0, info_keys=["parity"])], accounts_for_reward=True
    )
    with pytest.raises(ValueError, match="outcomes read \\(parity\\)"):
        resolve(model, reads_info, {}, 0.9)
