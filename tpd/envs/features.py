"""Converts observations to rows of named numbers (features) and back."""

import itertools
import math
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.lib.recfunctions import structured_to_unstructured, unstructured_to_structured

from tpd.core.types import Array, FloatArray
from tpd.envs.environment import Environment

MOST_FEATURES = 100
"""Upper bound on the features of an observation; images have too many to explain one by one."""
MOST_STATES = 100_000
"""Upper bound on the states of an environment with state fields, since all are listed."""
HIDDEN = "hidden state"


class FeatureError(ValueError):
    """Observations that do not consist of a few named numbers."""


@dataclass(frozen=True)
class Features:
    """Converts observations to rows of numbers and back, without loss."""

    names: tuple[str, ...]
    """[feature]: all numbers of a hidden state are called `hidden state`"""
    example: Array
    """[1, ...]: an example observation"""
    fields: FloatArray | None = None
    """[state, feature]: the fields of each state, for discrete states; NaN for a state without fields"""
    flags: tuple[str, ...] = ()
    """The names of boolean features."""

    def rows(self, observations: Array) -> FloatArray:
        """[batch, feature]"""
        if self.fields is not None:
            return self.fields[observations]
        if observations.dtype.names is None:
            return np.reshape(observations, (len(observations), -1)).astype(np.float64)
        return structured_to_unstructured(observations, np.dtype(np.float64))

    def shown(self, feature: int, value: float) -> str:
        """A value of a feature as text."""
        return str(bool(value)).lower() if self.names[feature] in self.flags else f"{value:.3g}"

    def observations(self, rows: FloatArray) -> Array:
        """[batch, ...]: the inverse of `rows`."""
        if self.fields is not None:
            known = {tuple(row): number for number, row in enumerate(self.fields.tolist())}
            return np.array([known[tuple(row)] for row in rows.tolist()], dtype=self.example.dtype)
        if self.example.dtype.names is None:
            return rows.reshape(len(rows), *self.example.shape[1:]).astype(self.example.dtype)
        return unstructured_to_structured(rows, self.example.dtype)


def features_of(env: Environment, observation: Array) -> Features:
    """The features of observations like this one [1, ...]; a FeatureError says why there are none."""
    if env.tabular:
        if not env.state_fields:
            raise FeatureError(
                f"the states of {env.id} are integers, and the environment does not say which fields they "
                "encode, so they have no features"
            )
        fields = env.state_fields
        flags = tuple(name for name, values in fields.items() if isinstance(values[0], bool))
        return Features(tuple(fields), observation, _fields(env), flags)
    count = _width(env.observation_space)
    if count > MOST_FEATURES:
        raise FeatureError(
            f"an observation of {env.id} has {count} numbers, but at most {MOST_FEATURES} features are "
            "supported"
        )
    features = Features(env.feature_names, observation)
    hidden = features.rows(observation).shape[1] - count
    return Features((*env.feature_names, *[HIDDEN] * hidden), observation)


def _fields(env: Environment) -> FloatArray:
    """[state, field]"""
    values, num_states = env.state_fields, env.table_shape()[0]
    count = math.prod(map(len, values.values()))
    if (most := max(count, num_states)) > MOST_STATES:
        raise FeatureError(f"{env.id} has {most} states, but features are computed for at most {MOST_STATES}")
    fields = np.full((num_states, len(values)), np.nan)
    for each in itertools.product(*values.values()):
        fields[int(env.state(dict(zip(values, each, strict=True))))] = each
    return fields


def _width(space: gym.Space[Any]) -> int:
    """Number of numbers in an observation."""
    if isinstance(space, gym.spaces.Dict):
        return sum(map(_width, space.values()))
    return math.prod(space.shape or ())
