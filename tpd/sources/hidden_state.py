"""Appends the hidden state of recurrent policies to their observations, as the last columns."""

import numpy as np

from tpd.core.observations import pack
from tpd.core.types import Array, Policy, RecurrentPolicy


def with_initial_state(policy: Policy, observations: Array) -> Array:
    """[batch, ...]: the first observations of episodes, with the initial hidden state of the policy."""
    observations = pack(observations)
    if not isinstance(policy, RecurrentPolicy):
        return observations
    return np.concatenate([observations, policy.start(len(observations))], axis=1)


def with_next_state(policy: Policy, before: Array, observations: Array) -> Array:
    """[batch, ...]: the next observations, with the hidden state after the policy saw `before`."""
    observations = pack(observations)
    if not isinstance(policy, RecurrentPolicy):
        return observations
    return np.concatenate([observations, policy.advance(before)], axis=1)
