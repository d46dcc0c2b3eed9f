"""The nearest state where the agent would do the foil, against a search through all states."""

import itertools

import numpy as np
import pytest

from tests.support.q_learning import q_learning
from tpd.answers.asked import Asked
from tpd.answers.nearest import NearestState
from tpd.core.outcomes import Legend
from tpd.core.types import Array, FloatArray, Policy
from tpd.envs import Environment
from tpd.policies.function import function_policy
from tpd.predictors.explainer import Explainer
from tpd.predictors.unlearned import Unlearned
from tpd.sources.states_met import StatesMet

TAXI = Environment("FuelTaxi-v0")
FIELDS = list(TAXI.state_fields)
STATES = [dict(zip(FIELDS, each, strict=True)) for each in itertools.product(*TAXI.state_fields.values())]
LEGEND = Legend(("failure",), (-100.0,), (), None, ("failure",))
EAST = 2


class Counted(Unlearned):
    """Knows which pairs were tried: those with fuel for so many moves."""

    updates = 1

    def __init__(self, fuel: int) -> None:
        super().__init__(5, 2)
        self.fuel = fuel

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.where(observations // 2 % 21 <= self.fuel, 7.0, 0.0)


@pytest.fixture(scope="module")
def policy() -> Policy:
    """What Q-learning has made of FuelTaxi in a short time."""
    trainer = q_learning(TAXI, steps=20_000)
    trainer.train()
    return trainer.policy


def nobody(enough: int) -> StatesMet:
    raise AssertionError("all states are at hand, and none has to be met")


def ask(explainer: Explainer, state: int, foil: int) -> NearestState:
    own = explainer.policy.action(np.array([state]))[0]
    names = (TAXI.name_of_action(own), TAXI.name_of_action(foil))
    return Asked(explainer, TAXI, np.array([state]), own, np.array(foil), names, own, nobody).nearest_state()


def by_search(policy: Policy, state: int, foil: int) -> tuple[int, float] | None:
    """The fewest fields that have to change, and by how much of their range; None if no state will do."""
    numbers = np.array([int(TAXI.state(each)) for each in STATES])
    here, found = STATES[int(np.flatnonzero(numbers == state)[0])], list[tuple[int, float]]()
    chosen, valid = policy.action(numbers), TAXI.mask(numbers)
    for there, action, mask in zip(STATES, chosen, valid, strict=True):
        if action == foil and mask[foil]:
            found.append(_distance(here, there))
    return min(found, default=None)


def _distance(here: dict[str, int | bool], there: dict[str, int | bool]) -> tuple[int, float]:
    spans = {name: max(values) - min(values) for name, values in TAXI.state_fields.items()}
    changed = [name for name in FIELDS if here[name] != there[name]]
    return len(changed), round(sum(abs(there[name] - here[name]) / spans[name] for name in changed), 9)


def test_fewest_and_smallest_changes_of_fields_as_a_search_finds_them(policy: Policy) -> None:
    explainer = Explainer(Unlearned(5, 2), policy, LEGEND)
    by_number = {int(TAXI.state(each)): each for each in STATES}
    rng, several = np.random.default_rng(0), 0
    for state in rng.choice(len(STATES), 8, replace=False).tolist():
        for foil in np.flatnonzero(TAXI.mask(np.array([state]))[0]).tolist():
            found = ask(explainer, state, foil)
            if foil == policy.action(np.array([state]))[0]:
                assert found.withheld == "it does so in this state"
                continue
            due = by_search(policy, state, foil)
            assert (found.observation is None) == (due is None)
            if found.observation is None:
                continue
            assert policy.action(found.observation[None])[0] == foil
            assert _distance(by_number[state], by_number[int(found.observation)]) == due
            assert len(found.changes) == due[0]
            several += due[0] > 1
    assert several


def test_it_is_said_with_the_fields_that_change() -> None:
    thrifty = function_policy(
        lambda states: np.where(states // 2 % 21 <= 10, EAST, 0), 0.9, TAXI.action_space
    )
    explainer = Explainer(Unlearned(5, 2), thrifty, LEGEND)
    here = int(TAXI.state({"row": 1, "col": 3, "fuel": 13, "passenger": False}))
    assert (
        ask(explainer, here, EAST).text
        == "With fuel 10 instead of 13, all else equal, the agent would choose east."
    )
    assert (
        ask(explainer, here, 3).text
        == "The agent chooses west in none of the 1050 states of the environment."
    )


def test_states_that_were_never_tried_are_left_out() -> None:
    hopeful = function_policy(lambda states: np.where(states // 2 % 21 == 8, EAST, 0), 0.9, TAXI.action_space)
    here = int(TAXI.state({"row": 1, "col": 3, "fuel": 5, "passenger": True}))
    assert ask(Explainer(Counted(fuel=20), hopeful, LEGEND), here, EAST).changes[0].there == "8"
    assert ask(Explainer(Counted(fuel=7), hopeful, LEGEND), here, EAST).observation is None


def test_without_fields_it_is_the_nearest_state_met_in_standard_deviations() -> None:
    env = Environment("CartPole-v1", observation_names=["position", "velocity", "angle", "turning"])
    policy = function_policy(lambda seen: (seen[:, 2] > 0).astype(np.int64), 1.0, env.action_space)
    met = np.random.default_rng(1).normal(size=(500, 4)).astype(np.float32) * [1, 10, 0.1, 1]
    here = met[met[:, 2] < 0][:1]
    explainer = Explainer(Unlearned(5, 2), policy, LEGEND)
    states = StatesMet(met, np.zeros(500, dtype=np.int64))
    names, own, foil = ("push left", "push right"), np.array(0), np.array(1)
    found = Asked(explainer, env, here, own, foil, names, own, lambda enough: states).nearest_state()
    distances = np.linalg.norm((met - here) / met.std(axis=0), axis=1)
    distances[met[:, 2] <= 0] = np.inf
    np.testing.assert_array_equal(found.observation, met[distances.argmin()])
    assert found.distance == pytest.approx(distances.min())
    assert (
        f"The nearest of 500 visited states where the agent chooses push right is {distances.min():.2g}"
        in found.text
    )
    plain = np.linalg.norm(met - here, axis=1)
    plain[met[:, 2] <= 0] = np.inf
    assert plain.argmin() != distances.argmin()
