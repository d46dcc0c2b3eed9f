"""What must be said beside an explanation: what it leaves out, and where it contradicts the agent."""

import numpy as np

from tpd.envs import Environment
from tpd.explainer import Explainer
from tpd.explanation import Explanation

NEGLIGIBLE = 0.005


def remarks(explanation: Explanation, row: int) -> list[str]:
    """The remainder beyond the horizon, and the gap to what the agent itself believes."""
    if not explanation.known[row]:
        return ["never tried, so nothing is known of it"]
    remainder = explanation.remainder
    running = remainder.running[row]
    said = [f"probability {running:.2f} that the episode runs on after step {explanation.horizon - 1}"]
    if running > NEGLIGIBLE and explanation.legend.reward_bound is not None:
        bound = remainder.bound[row]
        said[0] += f", worth at most ±{bound:.3g}" if np.isfinite(bound) else ", worth without bound"
    if remainder.gap is not None and explanation.agent_value is not None:
        own, explained = explanation.agent_value[row], explanation.expected_return[row, -1]
        said.append(f"the agent's own value is {own:.2f}, the explained return {explained:.2f}")
    return said


def disagreement(explainer: Explainer, env: Environment, state: int) -> str | None:
    """A sentence where the explained returns do not support what the agent does; None where they do."""
    if explainer.legend.reward_bound is None:
        return None
    states = np.array([state])
    own = explainer.policy.action(states)
    best = explainer.favoured(states, own, env.mask(states))
    if best[0] == own[0]:
        return None
    returns = explainer.action_returns(states)[0]
    return (
        f"in {env.name_of_state(state)} the explained returns favour {env.name_of_action(int(best[0]))} "
        f"({returns[best[0]]:.2f}) over the agent's {env.name_of_action(int(own[0]))} ({returns[own[0]]:.2f})"
    )
