"""Actions that a policy takes although the mask of its environment forbids them."""

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Transitions
from tpd.envs import Environment


def forbidden_actions(env: Environment, transitions: Transitions, outcomes: OutcomeSet) -> str:
    """A warning that names the share of such steps; empty where there are none, or an event tells of them.

    An event tells of them if it happens at every such step and at no other.
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
        "the mask or the agent may be the wrong one, and an event for invalid actions would show where"
    )
