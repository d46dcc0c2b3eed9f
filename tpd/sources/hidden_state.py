"""The hidden state of recurrent policies, carried in the last columns of their observations."""

import numpy as np

from tpd.core.observations import pack
from tpd.core.types import Array, Policy, RecurrentPolicy


def with_initial_state(policy: Policy, observations: Array) -> Array:
    """[batch, ...]: the first observations of episodes, as the policy is to see them."""
    observations = pack(observations)
    if not isinstance(policy, RecurrentPolicy):
        return observations
    return np.concatenate([observations, policy.start(len(observations))], axis=1)


def with_next_state(policy: Policy, before: Array, observations: Array) -> Array:
    """[batch, ...]: what is observed next, after the policy saw the observations `before`."""
    observations = pack(observations)
    if not isinstance(policy, RecurrentPolicy):
        return observations
    return np.concatenate([observations, policy.advance(before)], axis=1)
