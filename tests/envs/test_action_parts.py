"""Actions that consist of parts: foils that change one of them, from the space to the answer."""

import json
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import tpd
from tests.support.networks import network
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import Array
from tpd.envs import Environment
from tpd.envs.action_parts import ActionParts
from tpd.policies.function import FunctionPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.network.columns import Columns
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.predictor import NetworkPredictor
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.store import explainers
from tpd.tracking.served_requests import questions

SPACES = [
    spaces.MultiDiscrete([2, 3, 1]),
    spaces.MultiDiscrete(np.array([[2, 4], [3, 2]]), start=np.array([[0, 1], [5, 0]])),
    spaces.MultiBinary(4),
    spaces.MultiBinary([2, 2]),
]


def parts_of(space: spaces.Space[Any]) -> ActionParts:
    parts = ActionParts.of(space)
    assert parts is not None
    return parts


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_changes_differ_in_one_part_and_there_are_no_others(space: Any) -> None:
    parts = parts_of(space)
    space.seed(0)
    action = space.sample()
    changes = parts.changes(action)
    different = (changes != action).reshape(len(changes), -1).sum(axis=1)
    assert (different == 1).all()
    assert all(space.contains(change) for change in changes)
    assert len(np.unique(changes.reshape(len(changes), -1), axis=0)) == len(changes)
    assert len(changes) == (parts.counts - 1).sum()


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_one_part_is_changed_at_random_and_every_change_comes_up(space: Any) -> None:
    parts, rng = parts_of(space), np.random.default_rng(0)
    action = parts.draw(1, rng)
    drawn = parts.change_one(np.repeat(action, 3000, axis=0), rng)
    found, counts = np.unique(drawn.reshape(3000, -1), axis=0, return_counts=True)
    assert len(found) == (parts.counts - 1).sum()
    assert counts.min() > 0.7 * 3000 / len(found)
    assert (drawn != action).reshape(3000, -1).sum(axis=1).tolist() == [1] * 3000
    assert parts.holds(drawn).all()
    assert not parts.holds(drawn + 9).any()


def test_other_spaces_have_no_parts() -> None:
    assert ActionParts.of(spaces.Discrete(3)) is None
    assert ActionParts.of(spaces.Box(-1, 1, (2,))) is None


class Switches(gym.Env[Any, Any]):
    """A lamp burns if the first switch is on and the second at 2; the third does nothing."""

    observation_space = spaces.Box(0, 1, (1,))
    action_space = spaces.MultiDiscrete([2, 3, 4])

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        burns = float(action[0] == 1 and action[1] == 2)
        return np.array([burns], dtype=np.float32), burns, False, False, {}


gym.register(id="Switches-v0", entry_point="tests.envs.test_action_parts:Switches", max_episode_steps=20)

NAMES = {"action_names": ("main", "dial", "spare"), "choice_names": ("at 0", "at 1", "at 2", "at 3")}


def lights(observations: Array) -> Array:
    return np.tile([1, 2, 0], (len(observations), 1))


def burns(t: tpd.Transitions) -> Array:
    return np.asarray(t.next_observation[:, 0] > 0.5)


@pytest.fixture
def world() -> Environment:
    return Environment("Switches-v0", **NAMES)  # type: ignore[arg-type]


def test_actions_are_named_by_their_parts(world: Environment) -> None:
    base = np.array([1, 2, 0])
    assert world.name_of_action(base) == "main at 1, dial at 2, spare at 0"
    assert world.action([1, 0, 3]).tolist() == [1, 0, 3]
    assert world.action({"dial": "at 0"}, base).tolist() == [1, 0, 0]
    assert world.action({"dial": 1, "spare": 3}, base).tolist() == [1, 1, 3]
    assert Environment("Switches-v0").action({1: 1, "part 2": 3}, base).tolist() == [1, 1, 3]
    for wrong, message in [
        ({"lever": 1}, "no part 'lever'; its parts are main, dial, spare"),
        ({"main": 2}, "main has no choice 2; it has at 0, at 1"),
        ({"main": True}, "main has no choice True"),
        ({3: 0}, "no part 3"),
        ({1: 0}, "no part 1; its parts are main, dial, spare"),
    ]:
        with pytest.raises(ValueError, match=message):
            world.action(wrong, base)
    with pytest.raises(ValueError, match="changes parts of an unknown action"):
        world.action({"main": 0})
    with pytest.raises(ValueError, match="has no action"):
        world.action([1, 3, 0])
    with pytest.raises(ValueError, match="has 3 parts but 1 names"):
        Environment("Switches-v0", action_names=["main"]).check()


def test_the_simulator_answers_for_a_foil_that_changes_one_part(world: Environment) -> None:
    explainer = tpd.Explainer(lights, env=world, events={"burns": burns}, horizon=4)
    moment = explainer.play(seeds=[0])[0][3]
    answer = explainer.why(moment, foil={"dial": 0})
    assert answer.table.loc["burns", "fact"] == 4
    assert answer.table.loc["burns", "foil"] == 3
    assert "dial at 0 (the rest unchanged)" in answer.text
    idle = explainer.why(moment)  # by itself: the best of all changes of one part, which is that of the spare
    assert idle.table.loc["burns", "difference"] == 0
    assert "spare at 1 (the rest unchanged)" in idle.text


def test_a_network_learns_what_each_part_does_and_is_read_back(world: Environment, tmp_path: Path) -> None:
    policy = FunctionPolicy(lights, 0.9, world.action_space)
    outcomes = OutcomeSet([event("burns", burns)])
    learner = network(world, policy, outcomes, horizon=2, hidden=[64])
    explore = Exploration(0.0, every=(1, 3))
    explored = collect(
        world,
        policy,
        np.random.default_rng(0),
        steps=4000,
        exploration=explore,
        num_envs=20,
    )
    for batch in explored:
        learner.update(batch)
    for _ in range(600):
        learner.learn()
    here = np.zeros((7, 1), dtype=np.float32)
    actions = np.concatenate([lights(here[:1]), parts_of(world.action_space).changes(np.array([1, 2, 0]))])
    truth = (actions[:, 0] == 1) & (actions[:, 1] == 2)
    explainer = Explainer(learner, policy, outcomes.legend)
    expected = explainer.explain(here, actions).expected
    np.testing.assert_allclose(expected[:, 0, 0], truth, atol=0.1)
    np.testing.assert_allclose(expected[:, 1, 0], 1, atol=0.1)
    explainers.save(explainer, world, tmp_path)
    again = explainers.load(tmp_path, policy=policy)
    np.testing.assert_array_equal(again.explain(here, actions).expected, expected)
    many = json.loads((tmp_path / explainers.DESCRIPTION).read_text())
    many["network"]["action_space"]["nvec"] = str(10**12)
    (tmp_path / explainers.DESCRIPTION).write_text(json.dumps(many))
    with pytest.raises(ValueError, match="values that are stored"):
        explainers.load(tmp_path, policy=policy)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_a_served_network_takes_the_first_and_the_last_choices(
    space: Any, world: Environment, tmp_path: Path
) -> None:
    made = OutcomeNetwork(world.observation_space, space, Columns.all_real(2), horizon=2, hidden=[4])
    policy = FunctionPolicy(lights, 0.9, space)
    legend = OutcomeSet([event("burns", burns)]).legend
    explainers.save(Explainer(NetworkPredictor(made, np.ones(1, int), None), policy, legend), world, tmp_path)
    asked = questions(tmp_path)
    assert asked is not None
    read = asked.read(asked.example)
    parts = parts_of(space)
    np.testing.assert_array_equal(read.actions.ravel(), parts.first)
    np.testing.assert_array_equal(read.foils.ravel(), parts.first + parts.counts - 1)
    assert read.actions.shape[1:] == space.shape
