"""The known or counted transition table, for the page to solve again under other rewards."""

import numpy as np

from tpd.core.types import Array
from tpd.store.descriptions import UntrustedError
from tpd.store.saved_runs import SavedRun


def dynamics(run: SavedRun) -> dict[str, Array]:
    """Every possible transition, once; empty if the page could not solve the table."""
    if run.explainer.legend.reward_bound is None or run.explainer.policy.discount >= 1:
        return {}
    try:
        model, outcomes = run.model(), run.outcomes()
    except UntrustedError:
        return {}  # the outcomes need code that is not trusted
    if model is None or outcomes.info_keys:
        return {}
    transitions, probability = model.transitions()  # ordered by state and action
    return {
        "model_pair": (transitions.observation * model.num_actions + transitions.action).astype(np.int32),
        "model_next": transitions.next_observation.astype(np.int32),
        "model_probability": probability,
        "model_ends": transitions.terminated.astype(np.uint8),
        "model_outcome": outcomes.observe(transitions).outcome[:, :-1].astype(np.float32),
        "model_valid": model.mask.astype(np.uint8),
    }
