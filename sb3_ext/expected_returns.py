"""The return that an agent is expected to reach, from the files in its zip or beside it."""

import base64
import binascii
from pathlib import Path

import numpy as np
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_ext.inert_pickles import PickledObject, array_of, unpickled
from sb3_ext.unpickling import read_agent
from tpd.core.types import FloatArray
from tpd.guards.files import REAL, StoredArrays
from tpd.guards.settings import number
from tpd.policies.pretrained import ExpectedReturn

EVALUATIONS, BEST = "evaluations.npz", "best_model"
LARGEST = 1e30


def expected_return(zipped: Path, given: float | None) -> ExpectedReturn | None:
    """The return given, or the mean of the agent's evaluations or last training episodes; None if unknown."""
    if given is not None:
        return ExpectedReturn(number("expected_return", given, -LARGEST, LARGEST), "policy.expected_return")
    evaluations = zipped.parent / EVALUATIONS
    if evaluations.is_file():
        means = StoredArrays(evaluations).take("results", (None, None), REAL).mean(axis=1)
        mean = means.max() if zipped.stem == BEST else means[-1]
        return ExpectedReturn(float(mean), f"{EVALUATIONS} beside the zip")
    return _of_training(training_returns(zipped))


def expected_of_model(model: BaseAlgorithm) -> ExpectedReturn | None:
    """The mean return of the last training episodes, if the model still has them."""
    kept = [episode.get("r") for episode in model.ep_info_buffer or ()]
    returns = np.array([np.nan if value is None else value for value in kept], dtype=np.float64)
    return _of_training(returns if np.isfinite(returns).all() else None)


def _of_training(returns: FloatArray | None) -> ExpectedReturn | None:
    if returns is None or not len(returns):
        return None
    return ExpectedReturn(float(returns.mean()), f"the last {len(returns)} episodes of its training")


def training_returns(zipped: Path) -> FloatArray | None:
    """[episode]: returns of the last training episodes, which SB3 stores in the zip; None if it does not.

    They are pickled, and read without running anything.
    """
    kept = read_agent(zipped).settings.get("ep_info_buffer")
    if not isinstance(kept, dict):
        return None
    try:
        buffer = unpickled(base64.b64decode(kept[":serialized:"]))
        items = buffer.items if isinstance(buffer, PickledObject) else ()
        returns = np.array([float(array_of(item["r"])) for item in items])
    except (ValueError, KeyError, TypeError, binascii.Error):
        return None
    return returns if np.isfinite(returns).all() else None
