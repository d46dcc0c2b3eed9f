"""Policies on disk: a policy table saved with a dataset, and a placeholder for an agent not stored."""

from pathlib import Path
from typing import NoReturn

import numpy as np

from tpd.core.types import Array, DiscretePolicy, Rng
from tpd.envs import Environment
from tpd.guards.atomic import atomic_write
from tpd.guards.files import REAL, StoredArrays, blame, write_arrays
from tpd.policies.pretrained import Pretrained
from tpd.policies.tabular import TabularPolicy


class AbsentPolicy:
    """A placeholder for an agent that is not stored: has its discount, and the reason why it cannot act."""

    def __init__(self, discount: float, reason: str) -> None:
        self.discount, self.reason = discount, reason

    def action(self, observations: Array) -> NoReturn:
        raise ValueError(
            f"the agent is not stored with its explainer ({self.reason}): pass the actions to explain"
        )

    def sample(self, observations: Array, rng: Rng) -> NoReturn:
        self.action(observations)

    def action_values(self, observations: Array) -> None:
        return None


class DatasetPolicy(Pretrained):
    """A policy source: the table of action probabilities that was saved with a dataset."""

    def __init__(self, env: Environment, rng: Rng, *, path: str | None) -> None:
        if path is None:
            raise ValueError("set the folder of the dataset: training.path=…")
        file = Path(path).expanduser() / POLICY
        if not file.is_file():
            raise ValueError(
                f"{file} is missing: only policies of discrete states are saved with a dataset; load the "
                "agent itself, for example policy=sb3_zip policy.path=agent.zip"
            )
        stored, shape = StoredArrays(file), env.table_shape()
        probabilities = stored.take("probabilities", shape, REAL)
        discount = stored.take("discount", (), REAL)
        action_values = stored.optional("action_values", shape, REAL, finite=False)
        with blame(file):
            self.policy = TabularPolicy(probabilities, float(discount), action_values)


POLICY = "policy.npz"


def save_policy(policy: DiscretePolicy, env: Environment, folder: Path) -> None:
    """Save its table and its discount."""
    with atomic_write(folder / POLICY) as unfinished:
        write_arrays(unfinished, policy_arrays(policy, env) | {"discount": np.array(policy.discount)})


def policy_arrays(policy: DiscretePolicy, env: Environment) -> dict[str, Array]:
    """Its probabilities [state, action] and, if it has them, its action values."""
    states = np.arange(env.table_shape()[0])
    arrays, values = {"probabilities": policy.probabilities(states)}, policy.action_values(states)
    return arrays if values is None else arrays | {"action_values": values}
