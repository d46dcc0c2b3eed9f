"""The policy that was written down beside a recording."""

from pathlib import Path

import numpy as np

from tpd.envs import Environment
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
        try:
            with np.load(file, allow_pickle=False) as stored:
                arrays = dict(stored)
            probabilities, discount = arrays["probabilities"], float(arrays["discount"])
        except Exception as error:  # of whatever the file consists
            raise ValueError(f"{file} holds no policy: {error}") from error
        if probabilities.shape != env.table_shape():
            raise ValueError(f"{file} is for {probabilities.shape}, but {env.id} has {env.table_shape()}")
        self.policy = TabularPolicy(probabilities, discount, arrays.get("action_values"))
