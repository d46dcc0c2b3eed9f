"""The explainer: a predictor, the policy it speaks of, and the words for its outcomes."""

import numpy as np

from tpd.explanation import Explanation
from tpd.outcomes import Legend
from tpd.types import Array, FloatArray, Policy, Predictor


class Explainer:
    """Answers `explain` at any time, also while its predictor is still learning."""

    def __init__(self, predictor: Predictor, policy: Policy, legend: Legend) -> None:
        self.predictor = predictor
        self.policy = policy
        self.legend = legend

    def explain(self, observations: Array, actions: Array | None = None) -> Explanation:
        """Explain each pair of the batch; without actions, what the policy itself would do."""
        observations = np.asarray(observations)
        actions = self.policy.action(observations) if actions is None else np.asarray(actions)
        if len(actions) != len(observations):
            raise ValueError(f"{len(observations)} observations but {len(actions)} actions")
        predicted = self.predictor.predict(observations, actions)
        values = self.policy.action_values(observations)
        return Explanation(
            observations=observations,
            actions=actions,
            expected=predicted[:, :, :-1],
            running=predicted[:, :, -1],
            support=self.predictor.support(observations, actions),
            legend=self.legend,
            discount=self.policy.discount,
            agent_value=None if values is None else values[np.arange(len(actions)), actions],
        )

    def action_returns(self, observations: Array) -> FloatArray:
        """[batch, num_actions]: expected return to the horizon of every action; NaN if unknown."""
        observations = np.asarray(observations)
        num_actions = self.policy.probabilities(observations[:1]).shape[1]
        explanation = self.explain(
            np.repeat(observations, num_actions, axis=0),
            np.tile(np.arange(num_actions), len(observations)),
        )
        returns = np.where(explanation.known, explanation.expected_return[:, -1], np.nan)
        return returns.reshape(len(observations), num_actions)
