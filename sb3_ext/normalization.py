"""Frozen observation statistics of a VecNormalize."""

import pickle
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium import spaces
from stable_baselines3.common.vec_env import VecNormalize

from sb3_ext.inert_pickles import PickledObject, array_of, read_pickle
from sb3_ext.unpickling import one_line
from tpd.core.types import Array, FloatArray
from tpd.guards.settings import boolean

ORIGIN = "stable_baselines3.common.vec_env.vec_normalize.VecNormalize"


@dataclass(frozen=True, eq=False)
class ObservationNormalization:
    """Normalises observations as in training: `(observation - mean) / deviation`, clipped.

    For Dict spaces, mean and variance are per key, and other keys are unchanged; without any keys, nothing is
    normalised.
    """

    mean: FloatArray | Mapping[str, FloatArray]
    """[...]: of one observation"""
    variance: FloatArray | Mapping[str, FloatArray]
    """[...]: of one observation"""
    epsilon: float
    clip: float

    def __call__(self, observations: Any) -> Any:
        """[batch, ...]: an array or a dict of arrays, like the observations."""
        if not isinstance(self.mean, Mapping) or not isinstance(self.variance, Mapping):
            return self._normalised(observations, self.mean, self.variance)
        normalised = {
            key: self._normalised(observations[key], mean, self.variance[key])
            for key, mean in self.mean.items()
        }
        return {**observations, **normalised} if normalised else observations

    def _normalised(self, observations: Array, mean: Any, variance: Any) -> FloatArray:
        scaled = (observations - mean) / np.sqrt(variance + self.epsilon)
        normalised: FloatArray = np.clip(scaled, -self.clip, self.clip).astype(np.float32)
        return normalised


def load_normalization(
    path: str | Path, observation_space: spaces.Space[Any], *, trust: bool = False
) -> ObservationNormalization:
    """Load the statistics in a file of `VecNormalize.save`, for observations of this space.

    The file is a pickle. It is read without running it, unless it is trusted.
    """
    try:
        read = _trusted_state if boolean("trust", trust) else _untrusted_state
        return _normalization(read(Path(path)), observation_space)
    except ValueError as error:
        raise ValueError(one_line(path, error)) from error


def frozen(normalize: VecNormalize, space: spaces.Space[Any] | None = None) -> ObservationNormalization:
    """The current statistics of a VecNormalize, for observations of this space (default: its own)."""
    _check_own(normalize)
    return _normalization(vars(normalize), space or normalize.observation_space)


def _untrusted_state(path: Path) -> dict[str, Any]:
    record = read_pickle(path)
    if not isinstance(record, PickledObject) or not isinstance(record.state, dict):
        raise ValueError(
            f"contains a {type(record).__name__}, not the statistics of a VecNormalize: pass the file that "
            "VecNormalize.save wrote"
        )
    if record.origin != ORIGIN:
        raise ValueError(
            f"contains a {record.origin}, not a VecNormalize of Stable-Baselines3; if you trust the file, "
            "set trust=true, which runs its code"
        )
    return record.state


def _trusted_state(path: Path) -> dict[str, Any]:
    try:
        normalize = pickle.loads(path.read_bytes())
    except Exception as error:  # a pickle can run anything, so anything can be raised
        raise ValueError(f"cannot be unpickled ({type(error).__name__}: {error})") from error
    if not isinstance(normalize, VecNormalize):
        raise ValueError(f"contains a {type(normalize).__name__}, not the statistics of a VecNormalize")
    _check_own(normalize)
    return vars(normalize)


def _check_own(normalize: VecNormalize) -> None:
    for method in ("normalize_obs", "_normalize_obs"):
        if getattr(type(normalize), method) is not getattr(VecNormalize, method):
            raise ValueError(
                f"{type(normalize).__name__}, a subclass of VecNormalize with its own normalize_obs, is not "
                "supported"
            )


def _normalization(state: dict[str, Any], space: spaces.Space[Any]) -> ObservationNormalization:
    normalised = state.get("norm_obs", True)
    if not isinstance(normalised, bool | np.bool_):  # it may be nested too deep to print
        raise ValueError(f"norm_obs must be true or false, got a value of type {type(normalised).__name__}")
    if not normalised:
        return ObservationNormalization({}, {}, epsilon=0.0, clip=np.inf)
    epsilon, clip = (_number(state, name) for name in ("epsilon", "clip_obs"))
    if not (0 <= epsilon < np.inf and clip > 0):
        raise ValueError(
            f"VecNormalize needs epsilon >= 0 and clip_obs > 0, got epsilon={epsilon:g}, clip_obs={clip:g}"
        )
    statistics = state.get("obs_rms")
    if not isinstance(space, spaces.Dict):
        return ObservationNormalization(*_mean_and_variance(statistics, space, "observations"), epsilon, clip)
    if not isinstance(statistics, dict):
        raise ValueError(
            f"the statistics are of arrays, but the environment has Dict observations, {sorted(space.spaces)}"
        )
    keys = list(statistics) if state.get("norm_obs_keys") is None else state["norm_obs_keys"]
    known = space.spaces.keys() & statistics.keys()
    if not isinstance(keys, list) or not all(isinstance(key, str) and key in known for key in keys):
        raise ValueError(
            f"the keys of the statistics, {keys!r:.80}, do not match the observations' {[*space.spaces]}"
        )
    pairs = {key: _mean_and_variance(statistics[key], space[key], key) for key in keys}
    mean, variance = ({key: pair[i] for key, pair in pairs.items()} for i in range(2))
    return ObservationNormalization(mean, variance, epsilon, clip)


def _mean_and_variance(running: Any, space: spaces.Space[Any], name: str) -> tuple[FloatArray, FloatArray]:
    """Mean and variance, each [...] like one observation."""
    state = running.state if isinstance(running, PickledObject) else getattr(running, "__dict__", None)
    if not isinstance(state, dict) or not {"mean", "var"} <= set(state):
        raise ValueError(f"the statistics have no mean and variance of {name}")
    mean, variance = (_array(state[values], space.shape or (), name) for values in ("mean", "var"))
    if not (np.isfinite(mean).all() and np.isfinite(variance).all() and (variance >= 0).all()):
        raise ValueError(f"the mean and variance of {name} must be finite, and the variance non-negative")
    return mean, variance


def _array(value: Any, due: tuple[int, ...], name: str) -> FloatArray:
    """[*due]: an array; its shape is checked before memory is allocated."""
    array = value if isinstance(value, np.ndarray | np.generic) else array_of(value, name)
    if array.shape != due:
        if not due:
            raise ValueError(f"{name} must be a number, got an array of shape {array.shape}")
        raise ValueError(
            f"the statistics of {name} have shape {array.shape}, but the environment's observations have "
            f"shape {due}: pass the VecNormalize file that was saved with this agent"
        )
    return np.asarray(array, dtype=np.float64)


def _number(state: dict[str, Any], name: str) -> float:
    value = _array(state.get(name), (), name)
    if not value >= 0:
        raise ValueError(f"{name} must be a non-negative number, got {value}")
    return float(value)
