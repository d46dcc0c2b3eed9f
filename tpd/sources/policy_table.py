"""What a policy does in every numbered state, kept beside a recording."""

from pathlib import Path

import numpy as np

from tpd.envs import Environment
from tpd.files import whole
from tpd.types import DiscretePolicy

POLICY = "policy.npz"


def save_policy(policy: DiscretePolicy, env: Environment, folder: Path) -> None:
    """Write its probabilities [state, action], its discount and, where it has them, its values."""
    states = np.arange(env.table_shape()[0])
    arrays = {"probabilities": policy.probabilities(states), "discount": np.array(policy.discount)}
    values = policy.action_values(states)
    arrays |= {} if values is None else {"action_values": values}
    with whole(folder / POLICY) as unfinished, unfinished.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)
