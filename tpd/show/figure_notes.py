"""Remarks below figures: what an explanation leaves out, and where it contradicts the agent."""

from tpd.answers.sentences.compare import ahead
from tpd.answers.sentences.describe import NEGLIGIBLE
from tpd.answers.sentences.formatting import bound_in_words
from tpd.core.explanation import Explanation
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer
from tpd.sources.named_states import NamedState


def remarks(explanation: Explanation, row: int) -> list[str]:
    """What is not explained, and the gap to the agent's own value estimate."""
    if not explanation.known[row]:
        return ["never tried, so nothing is known about it"]
    remainder = explanation.remainder
    running, unknown = remainder.running[row], remainder.unknown[row]
    told, rewarded = explanation.told, explanation.legend.reward_bound is not None
    if explanation.endless:
        said = ["returns are over an infinite horizon"]
    elif not told.ended[row, -1]:
        said = [f"whether the episode continues after step {explanation.horizon - 1} is not learned"]
    else:
        said = [f"probability {running:.2f} that the episode continues after step {explanation.horizon - 1}"]
    if unknown > NEGLIGIBLE:
        said[0] += f" and {unknown:.2f} that it has reached an untried state-action pair by then"
    if max(running, unknown) > NEGLIGIBLE and rewarded and told.ended[row, -1]:
        limit = bound_in_words(remainder.bound[row], abs(explanation.expected_return[row, -1]))
        said[0] += f", worth {limit}" if limit else ""
    if rewarded and not told.returns[row, -1]:
        said.append("its return is not learned")
    elif remainder.gap is not None and explanation.agent_value is not None:
        own, explained = explanation.agent_value[row], explanation.expected_return[row, -1]
        said.append(f"the agent's own value estimate is {own:.2f}, the expected return {explained:.2f}")
        if not explanation.foreseen[row, -1]:
            said[-1] += " (without the unknown part)"
    return said


def disagreement(explainer: Explainer, env: Environment, state: NamedState) -> str | None:
    """A sentence if another action has a higher return than the agent's; otherwise None."""
    if explainer.legend.reward_bound is None or not env.discrete:
        return None
    returns = explainer.action_returns(state.observation)
    taken = explainer.policy.action(state.observation)
    best, own = explainer.preferred(state.observation, taken, env.mask(state.observation))[0], taken[0]
    if best == own:
        return None
    agents = f"the agent's {env.name_of_action(own)}"
    said = ahead(env.name_of_action(best), returns[0, best], agents, returns[0, own])
    return f"in {state.name}, {said}"
