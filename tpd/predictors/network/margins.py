"""How clearly an agent prefers the action that it takes, as an input of a network."""

import numpy as np

from tpd.core.types import Array, FloatArray, Policy

ROWS_AT_ONCE = 8192


class Margins:
    """The best action value of an agent minus the second best, at any observation.

    What happens next may depend on whether the agent is about to change its mind: a lander comes to rest only
    if it keeps doing nothing. A network would have to learn the agent's own values to see that.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def __deepcopy__(self, memo: object) -> "Margins":
        """Copies of a network ask the same agent."""
        return self

    def __call__(self, observations: Array) -> FloatArray:
        """[batch, 1]"""
        parts = [np.zeros((0, 1), dtype=np.float32)]
        for start in range(0, len(observations), ROWS_AT_ONCE):
            values = self._policy.action_values(observations[start : start + ROWS_AT_ONCE])
            assert values is not None, "the agent has lost its action values"
            second, best = np.sort(values, axis=1)[:, -2:].T
            parts.append((best - second)[:, None].astype(np.float32))
        return np.nan_to_num(np.concatenate(parts))


def has_margins(policy: Policy, observations: Array) -> bool:
    """Whether a policy has action values of its own to compare, and observations are no numbered states."""
    if not len(observations) or (observations.ndim == 1 and observations.dtype.names is None):
        return False
    values = policy.action_values(observations[:1])
    return values is not None and values.shape[1] > 1
