"""Exact distributions of returns, by convolution over all paths."""

from collections.abc import Mapping

import numpy as np

from tests.support import small_mdp
from tests.support.small_mdp import NUM_ACTIONS, NUM_STATES
from tpd.policies.tabular import TabularPolicy

HORIZON = 8
SHARE = 0.2
STATES, ACTIONS = np.divmod(np.arange(NUM_STATES * NUM_ACTIONS), NUM_ACTIONS)


# The return over the horizon


def convolved(policy: TabularPolicy) -> list[dict[float, float]]:
    """For each pair every return there can be, with its probability: nothing is projected."""
    model = small_mdp.environment().model
    assert model is not None
    choices = policy.probabilities(np.arange(NUM_STATES))
    following: dict[tuple[int, int], dict[float, float]] = {
        pair: {0.0: 1.0} for pair in np.ndindex(NUM_STATES, NUM_ACTIONS)
    }
    for _ in range(HORIZON):
        longer = {}
        for s, a in following:
            found: dict[float, float] = {}
            for branch in range(model.probability.shape[2]):
                p, reward = model.probability[s, a, branch], model.reward[s, a, branch]
                then: list[tuple[float, Mapping[float, float]]] = [(1.0, {0.0: 1.0})]
                if not model.terminated[s, a, branch]:
                    arrival = int(model.next_state[s, a, branch])
                    then = [(choices[arrival, b], following[arrival, b]) for b in range(NUM_ACTIONS)]
                for q, returns in then:
                    for value, chance in returns.items():
                        total = round(float(reward + policy.discount * value), 10)
                        found[total] = found.get(total, 0.0) + p * q * chance
            longer[s, a] = found
        following = longer
    return list(following.values())
