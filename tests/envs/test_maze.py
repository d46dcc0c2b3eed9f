"""MiniGrid's DoorKey: its cells, its events, and its explainers, which are saved, loaded and served."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hydra.utils import instantiate
from mlflow.exceptions import MlflowException

from tests.support import Compose
from tpd.core.observations import batch
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Transitions
from tpd.envs import Environment
from tpd.envs.maze import EMPTY
from tpd.run.parts import build
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.store import explainers
from tpd.tracking.served_model import _load_pyfunc

LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = range(7)
KEY = 5


@pytest.fixture
def env(compose_config: Compose) -> Environment:
    made: Environment = instantiate(compose_config("env=door_key").env, _convert_="all")
    return made


@pytest.fixture
def outcomes(compose_config: Compose) -> OutcomeSet:
    made: OutcomeSet = instantiate(
        compose_config("env=door_key", "outcomes=door_key").outcomes, _convert_="all"
    )
    return made


class Walk:
    """Steps through a level, and knows what each step did."""

    def __init__(self, env: Environment, seed: int) -> None:
        self.env, self.steps = env.make(), list[tuple[Any, ...]]()
        self.space = env.observation_space
        self.seen = self.env.reset(seed=seed)[0]
        self.level: Any = self.env.unwrapped

    def step(self, action: int) -> bool:
        """Whether the episode goes on."""
        after, reward, terminated, truncated, _ = self.env.step(action)
        self.steps.append((self.seen, action, after, reward, terminated, truncated))
        self.seen = after
        return not (terminated or truncated)

    def turn_to(self, direction: int) -> None:
        while self.level.agent_dir != direction:
            self.step(RIGHT)

    def go_to(self, x: int, y: int) -> None:
        """Up or down first, then to the right."""
        here = self.level.agent_pos
        for direction, steps in ((1, y - here[1]), (3, here[1] - y), (0, x - here[0])):
            if steps > 0:
                self.turn_to(direction)
                for _ in range(steps):
                    self.step(FORWARD)

    @property
    def transitions(self) -> Transitions:
        seen, action, after, reward, terminated, truncated = zip(*self.steps, strict=True)
        return Transitions(
            batch(self.space, seen),
            np.array(action),
            batch(self.space, after),
            np.array(reward, dtype=np.float64),
            np.array(terminated),
            np.array(truncated),
        )


def find(level: Any, kind: str) -> tuple[int, int]:
    cells = ((x, y) for x in range(level.width) for y in range(level.height))
    return next(cell for cell in cells if getattr(level.grid.get(*cell), "type", "") == kind)


def solved(env: Environment, seed: int) -> Walk:
    """Takes the key, drops it, takes it again, opens, closes and opens the door, and reaches the goal."""
    walk = Walk(env, seed)
    key, door = find(walk.level, "key"), find(walk.level, "door")
    above = walk.level.agent_pos[1] < key[1]
    walk.go_to(1, key[1] - 1 if above else key[1] + 1)
    walk.turn_to(1 if above else 3)
    for action in (PICKUP, DROP, PICKUP):
        walk.step(action)
    walk.go_to(1, door[1])
    walk.turn_to(0)
    for action in (FORWARD, TOGGLE, TOGGLE, TOGGLE, FORWARD, FORWARD):
        walk.step(action)
    walk.go_to(3, 3)
    return walk


def test_it_is_seeded_and_shows_what_the_level_holds(env: Environment) -> None:
    walk, again = Walk(env, 3), Walk(env, 3)
    assert all(np.array_equal(walk.seen[key], again.seen[key]) for key in walk.seen)
    assert not np.array_equal(walk.seen["cells"], Walk(env, 5).seen["cells"])
    key = find(walk.level, "key")
    cells = walk.seen["cells"].reshape(5, 5, 3)
    assert cells[key][0] == KEY
    assert cells[tuple(walk.level.agent_pos)].tolist() == [10, 0, walk.level.agent_dir]
    assert walk.seen["carrying"] == EMPTY
    assert env.observation_space.contains(walk.seen)


@pytest.mark.parametrize("seed", range(6))
def test_events_are_what_happened(env: Environment, outcomes: OutcomeSet, seed: int) -> None:
    walk = solved(env, seed)
    steps = walk.transitions
    names = [outcome.name for outcome in outcomes.outcomes]
    happened = outcomes.observe(steps)[0][:, : len(names)]
    seen = {name: np.flatnonzero(happened[:, k]).tolist() for k, name in enumerate(names)}
    tried = [int(action) for action in steps.action]
    first = tried.index(PICKUP)
    opened = [step for step, action in enumerate(tried) if action == TOGGLE]
    assert seen["takes key"] == [first, first + 2]
    assert seen["drops key"] == [first + 1]
    assert seen["opens door"] == [opened[0], opened[2]]
    assert seen["closes door"] == [opened[1]]
    assert seen["bumps"] == seen["wastes a step"] == [opened[0] - 1]  # the door is closed
    assert seen["reaches goal"] == [len(steps) - 1]
    assert steps.terminated[-1]
    assert steps.reward[-1] == pytest.approx(1 - 0.9 * len(steps) / 250)
    assert len(seen["holds key"]) == len(steps) - first - 1


@pytest.fixture
def explained(compose_config: Compose, tmp_path: Path) -> tuple[Any, Transitions, Path]:
    """A run that has hardly learned anything, saved."""
    small = [
        "policy.steps=0",
        "policy.algorithm.batch_size=64",
        "explainer.hidden=[8]",
        "explainer.horizon=4",
    ]
    parts = build(compose_config("experiment=door_key", *small))
    rng, explore = np.random.default_rng(0), Exploration(0.5)
    (seen,) = collect(parts.env, parts.trainer.policy, rng, steps=40, exploration=explore, num_envs=5)
    parts.explainer.predictor.update(seen)  # type: ignore[attr-defined]
    explainers.save(parts.explainer, parts.env, tmp_path)
    return parts.explainer, seen, tmp_path


def test_explainer_and_agent_are_loaded_as_they_were(explained: tuple[Any, Transitions, Path]) -> None:
    explainer, seen, folder = explained
    again = explainers.load(folder)
    np.testing.assert_array_equal(
        again.policy.action(seen.observation), explainer.policy.action(seen.observation)
    )
    np.testing.assert_array_equal(
        again.explain(seen.observation, seen.action).expected,
        explainer.explain(seen.observation, seen.action).expected,
    )


def test_dict_observations_are_served(explained: tuple[Any, Transitions, Path]) -> None:
    explainer, seen, folder = explained
    model = _load_pyfunc(str(folder))
    state = {"carrying": int(seen.observation["carrying"][0]), "cells": seen.observation["cells"][0].tolist()}
    answer = model.predict(pd.DataFrame({"state": [state], "action": [2], "foil": [0]}))
    expected = explainer.explain(seen.observation[:1], np.array([2])).expected[0]
    fact = answer[answer["role"] == "fact"]
    np.testing.assert_allclose(fact[list(explainer.legend.names)].astype(float), expected, atol=1e-6)
    assert len(model.predict(model.questions.example))
    for wrong, message in [
        ({**state, "carrying": 11}, "row 0, column state: carrying: 11 is not a state"),
        ({**state, "cells": [0.5] * 75}, "row 0, column state: cells: entry 0 is 0.5, which is not a whole"),
        ({**state, "cells": [99] * 75}, "row 0, column state: cells: entry 0 is 99, which is not in [0, 10]"),
        ({"cells": state["cells"]}, "row 0, column state: expected an object of carrying"),
        ([1, 2], "row 0, column state: expected an object of carrying"),
    ]:
        with pytest.raises(MlflowException) as refused:
            model.predict(pd.DataFrame({"state": [wrong], "action": [2]}))
        assert refused.value.message.startswith(message)
