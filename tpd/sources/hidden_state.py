"""The memory of recurrent policies, which travels in the last columns of what they observe."""

import numpy as np

from tpd.core.observations import pack
from tpd.core.types import Array, Policy, RecurrentPolicy


def begin(policy: Policy, observations: Array) -> Array:
    """[batch, ...]: the first observations of episodes, as the policy is to see them."""
    observations = pack(observations)
    if not isinstance(policy, RecurrentPolicy):
        return observations
    return np.concatenate([observations, policy.start(len(observations))], axis=1)


def follow(policy: Policy, before: Array, observations: Array) -> Array:
    """[batch, ...]: what is observed next, after the policy saw the observations `before`."""
    observations = pack(observations)
    if not isinstance(policy, RecurrentPolicy):
        return observations
    return np.concatenate([observations, policy.advance(before)], axis=1)
