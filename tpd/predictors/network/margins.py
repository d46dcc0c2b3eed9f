"""The agent's action margin (best minus second-best action value), as an input of the network."""

import numpy as np

from tpd.core.types import Array, FloatArray, Policy

ROWS_AT_ONCE = 8192


class Margins:
    """Computes the agent's best action value minus the second best, for any observation.

    The future may depend on whether the agent is about to change its action: a lander comes to rest only if
    it keeps doing nothing. Without this input, a network would have to learn the agent's own values.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __deepcopy__(self, memo: object) -> "Margins":
        """Copies of a network share the agent."""
        return self

    def __call__(self, observations: Array) -> FloatArray:
        """[batch, 1]"""
        parts = [np.zeros((0, 1), dtype=np.float32)]
        for start in range(0, len(observations), ROWS_AT_ONCE):
            values = self._policy.action_values(observations[start : start + ROWS_AT_ONCE])
            assert values is not None, "the agent's action values, an input of the explainer, are missing"
            second, best = np.sort(values, axis=1)[:, -2:].T
            parts.append((best - second)[:, None].astype(np.float32))
        return np.nan_to_num(np.concatenate(parts))


def has_margins(policy: Policy, observations: Array) -> bool:
    """Whether the policy has values of two or more actions, and observations are not numbered states."""
    if not len(observations) or (observations.ndim == 1 and observations.dtype.names is None):
        return False
    values = policy.action_values(observations[:1])
    return values is not None and values.shape[1] > 1
