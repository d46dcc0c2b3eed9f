"""What forecasts of a table rely on, where states have fields: against coalitions written out by hand."""

import itertools
import math

import numpy as np
import pytest

from tpd.answers.asked import Asked
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import IntArray
from tpd.envs import Environment
from tpd.envs.events.fuel_taxi import failure
from tpd.envs.features import features_of
from tpd.envs.fuel_taxi.rules import Action, decode, encode
from tpd.policies.function import DiscreteFunctionPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.sources.states_met import StatesMet

TAXI = Environment("FuelTaxi-v0")
HORIZON, FIELDS = 8, ("row", "col", "fuel", "passenger")
HERE = encode(3, 2, 4, False)


@pytest.fixture(scope="module")
def explainer() -> Explainer:
    """Of a taxi that drives north, and south again from the top, until it is empty."""
    policy = DiscreteFunctionPolicy(
        lambda states: np.where(states // 210 == 0, Action.SOUTH, Action.NORTH), 0.99, TAXI.action_space
    )
    outcomes = OutcomeSet([event("failure", failure, -100.0), event("failure", failure, first=True)])
    exact = ExactSolution(TAXI, policy, outcomes, horizon=HORIZON)
    return Explainer(exact, policy, outcomes.legend)


def met(rows: range = range(1, 5)) -> IntArray:
    """[state]: 60 states, of these rows."""
    rng = np.random.default_rng(0)
    fields = rng.choice(rows, size=60), *(rng.integers(*each, size=60) for each in ((0, 5), (2, 20), (0, 2)))
    return np.array(
        [
            encode(row, col, fuel, bool(on_board))
            for row, col, fuel, on_board in np.stack(fields, axis=1).tolist()
        ]
    )


def asked(explainer: Explainer, states: IntArray, action: Action) -> Asked:
    return Asked(
        explainer,
        TAXI,
        np.array([HERE]),
        np.array(int(action)),
        None,
        (TAXI.name_of_action(action),),
        None,
        lambda enough: StatesMet(states, np.arange(len(states)) % 6),
    )


def by_hand(explainer: Explainer, states: IntArray, action: Action) -> list[float]:
    """Shapley values of the fields, over all sets of them that keep their values."""
    column = explainer.legend.names.index("first failure")

    def worth(kept: frozenset[str]) -> float:
        mixed = [
            encode(**{name: getattr(decode(HERE if name in kept else int(z)), name) for name in FIELDS})
            for z in states
        ]
        expected = explainer.explain(np.array(mixed), np.full(len(mixed), int(action))).expected
        return float(expected[:, :, column].sum(axis=1).mean())

    values = list[float]()
    for name in FIELDS:
        others, value = [each for each in FIELDS if each != name], 0.0
        for size in range(len(FIELDS)):
            share = math.factorial(size) * math.factorial(3 - size) / math.factorial(4)
            for kept in map(frozenset, itertools.combinations(others, size)):
                value += share * (worth(kept | {name}) - worth(kept))
        values.append(value)
    return values


def test_values_of_fields_are_those_of_all_coalitions(explainer: Explainer) -> None:
    states = met()
    found = asked(explainer, states, Action.NORTH).drivers("failure")
    assert found.names == FIELDS
    assert found.background == len(states)
    np.testing.assert_allclose(found.values, by_hand(explainer, states, Action.NORTH), atol=1e-9)
    assert found.values.sum() == pytest.approx(found.forecast - found.base)
    assert found.values.argmax() == FIELDS.index("fuel")
    assert "relies mainly on fuel = 4 (+" in found.text
    assert not np.allclose(found.values, by_hand(explainer, met(range(1, 3)), Action.NORTH), atol=1e-3)


def test_where_the_action_is_mostly_not_valid_nothing_is_said(explainer: Explainer) -> None:
    some = asked(explainer, met(range(5)), Action.NORTH).drivers()
    assert not some.withheld
    assert some.background < 60
    none = asked(explainer, met(range(1)), Action.NORTH).drivers()
    assert "combined with 60 of 60 visited states, parts of this state give states in which" in none.text
    assert not len(none.values)


def test_fields_are_turned_into_states_and_back() -> None:
    features, states = features_of(TAXI, np.array([0])), np.arange(1050)
    np.testing.assert_array_equal(features.observations(features.rows(states)), states)
    assert features.rows(np.array([HERE])).tolist() == [[3, 2, 4, 0]]
    assert features.shown(3, 0.0) == "false"
    with pytest.raises(ValueError, match="which fields they encode"):
        features_of(Environment("FrozenLake-v1"), np.array([0]))
