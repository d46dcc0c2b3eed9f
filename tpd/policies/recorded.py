"""The policy that was written down beside a recording."""

from pathlib import Path

import numpy as np

from tpd.envs import Environment
from tpd.plain_files import REAL, StoredArrays, blame
from tpd.policies.tabular import TabularPolicy
from tpd.policies.untrained import Untrained
from tpd.sources.policy_table import POLICY


class RecordedPolicy(Untrained):
    """A table of what the policy did in every state, as a policy source."""

    def __init__(self, env: Environment, rng: np.random.Generator, *, path: str | None) -> None:
        if path is None:
            raise ValueError("name the folder of the recording: training.path=…")
        file = Path(path).expanduser() / POLICY
        if not file.is_file():
            raise ValueError(
                f"{file} is missing: only policies of numbered states are recorded, name a policy"
            )
        stored, shape = StoredArrays(file), env.table_shape()
        probabilities = stored.take("probabilities", shape, REAL)
        discount = stored.take("discount", (), REAL)
        action_values = stored.take("action_values", shape, REAL, finite=False, optional=True)
        with blame(file):
            self.policy = TabularPolicy(probabilities, float(discount), action_values)
