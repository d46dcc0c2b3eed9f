"""Batches of a small MDP, and its exact solution."""

from collections.abc import Iterator
from typing import Any

from tests.support import small_mdp
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy, FloatArray, Policy, Transitions
from tpd.predictors.exact import ExactSolution
from tpd.run.training import Training
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration

HORIZON = 8


def batches(policy: Policy, steps: int, seed: int = 0) -> Iterator[Transitions]:
    env = small_mdp.environment()
    return collect(
        env, policy, generator(seed, "test"), steps=steps, exploration=Exploration(0.5), num_envs=50
    )


def exact(policy: DiscretePolicy) -> FloatArray:
    solution = ExactSolution(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=HORIZON)
    return small_mdp.dense(solution.table())


def train(training: Training, *arguments: Any, **handlers: Any) -> None:
    """All stages of a training, one after the other."""
    for stage in training.stages(*arguments, **handlers):
        stage()
