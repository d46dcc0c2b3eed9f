"""Warns if a policy takes actions that the action mask of its environment forbids."""

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Transitions
from tpd.envs import Environment


def forbidden_actions(env: Environment, transitions: Transitions, outcomes: OutcomeSet) -> str:
    """A warning with the fraction of such steps; empty if there are none, or if an event already marks them.

    An event marks them if it happens at exactly these steps.
    """
    if not env.discrete:
        return ""
    valid = env.mask(transitions.observation)
    forbidden = ~valid[np.arange(len(transitions)), transitions.action.astype(np.int64)]
    if not forbidden.any():
        return ""
    events = [outcome.is_event for outcome in outcomes.outcomes]
    happened = outcomes.observe(transitions).outcome[:, :-1][:, events] == 1
    if (happened == forbidden[:, None]).all(axis=0).any():
        return ""
    return (
        f"the agent takes actions that the mask of {env.id} forbids, at {forbidden.mean():.1%} of the steps: "
        "the mask or the agent may be wrong; an event for invalid actions would show where"
    )
