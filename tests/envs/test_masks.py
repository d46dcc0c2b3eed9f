"""Masks of actions that cannot be masks."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from gymnasium.envs.toy_text.taxi import TaxiEnv

from tpd.core.seeding import generator
from tpd.core.types import Array, BoolArray, IntArray
from tpd.envs import Environment
from tpd.envs.environment import MaskError
from tpd.policies.q_learning import QLearning
from tpd.policies.tabular import TabularPolicy
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration

START, GOAL = 36, 47


def all_but(observations: IntArray, state: int) -> BoolArray:
    return np.repeat((observations != state)[:, None], 4, axis=1)


def cliff(mask: Callable[[Array], BoolArray]) -> Environment:
    return Environment("CliffWalking-v1", mask_function=mask)


def learned(env: Environment) -> None:
    settings = {
        "learning_rate": 0.5,
        "epsilon_start": 1.0,
        "epsilon_end": 1.0,
        "epsilon_decay_steps": 1,
        "explained_epsilon": 0.0,
        "stages": 1,
    }
    QLearning(env, generator(0, "policy"), steps=3000, discount=0.9, num_envs=5, **settings).train()  # type: ignore[arg-type]


def collected(env: Environment) -> None:
    policy = TabularPolicy(np.full((48, 4), 0.25), 0.9)
    list(collect(env, policy, generator(0, "x"), steps=3000, exploration=Exploration(0.5), num_envs=5))


@pytest.mark.parametrize("work", [learned, collected])
def test_a_state_where_somebody_acts_needs_a_valid_action(work: Callable[[Environment], None]) -> None:
    with pytest.raises(MaskError, match=f"allows no action in state {START}; it must allow at least one"):
        work(cliff(partial(all_but, state=START)))
    work(cliff(partial(all_but, state=GOAL)))  # where nobody acts


@pytest.mark.parametrize("row", [["no"] * 4, [np.nan] * 4, [1, 1, 1], [[1] * 4], None])
def test_a_mask_of_the_environments_own_is_checked_too(row: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaxiEnv, "action_mask", lambda self, state: row)
    with pytest.raises(MaskError, match="Taxi-v4 masks state 0 by"):
        _ = Environment("Taxi-v4").model


@pytest.mark.parametrize(
    "mask",
    [
        lambda states: np.ones((len(states), 3), dtype=bool),
        lambda states: np.ones(4, dtype=bool),
        lambda states: np.full((len(states), 4), 0.5),
        lambda states: None,
    ],
)
def test_a_mask_of_another_shape_or_kind_is_refused(mask: Callable[[Array], BoolArray]) -> None:
    with pytest.raises(MaskError, match="the mask function of CliffWalking-v1 gives"):
        cliff(mask).mask(np.arange(3))
