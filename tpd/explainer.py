"""The explainer: a predictor, the policy it speaks of, and the words for its outcomes."""

import numpy as np

from tpd.explanation import Explanation
from tpd.outcomes import Legend
from tpd.types import Array, BoolArray, FloatArray, IntArray, Policy, Predictor

TIE = 1e-6


class Explainer:
    """Answers `explain` at any time, also while its predictor is still learning."""

    def __init__(self, predictor: Predictor, policy: Policy, legend: Legend) -> None:
        self.predictor = predictor
        self.policy = policy
        self.legend = legend

    def explain(self, observations: Array, actions: Array | None = None) -> Explanation:
        """Explain each pair of the batch; without actions, what the policy itself would do."""
        observations = np.asarray(observations)
        if observations.ndim == 0:
            raise ValueError(f"observations come in batches, got the single {observations}")
        if actions is None:
            actions = self.policy.action(observations)
        else:
            actions = np.asarray(actions)
            self._check(observations, actions)
        predicted = self.predictor.predict(observations, actions)
        values = self.policy.action_values(observations)
        return Explanation(
            observations=observations,
            actions=actions,
            expected=predicted[:, :, :-1],
            # what is not learned yet counts as running: too little data must not look like an ending
            running=1 - np.cumsum(predicted[:, :, -1], axis=1),
            support=self.predictor.support(observations, actions),
            legend=self.legend,
            discount=self.policy.discount,
            agent_value=None if values is None else values[np.arange(len(actions)), actions],
        )

    def _check(self, observations: Array, actions: Array) -> None:
        if len(actions) != len(observations):
            raise ValueError(f"{len(observations)} observations but {len(actions)} actions")
        if observations.dtype.kind in "iu" and observations.min(initial=0) < 0:
            raise ValueError(f"states are numbered from 0, got {observations.min()}")
        try:
            num_actions = self.policy.probabilities(observations).shape[1]
        except IndexError as error:
            raise ValueError(f"the policy does not know every state: {error}") from error
        wrong = (actions < 0) | (actions >= num_actions)
        if wrong.any():
            raise ValueError(f"actions are numbered from 0 to {num_actions - 1}, got {actions[wrong][0]}")

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

    def favoured(self, observations: Array, actions: Array, valid: BoolArray) -> IntArray:
        """[batch]: the valid action of the largest explained return, if larger than that of the action.

        The action itself where nothing is better, or where it was never tried.
        """
        returns = self.action_returns(observations)
        returns[np.isnan(returns) | ~valid] = -np.inf
        own = returns[np.arange(len(returns)), actions]
        better = np.isfinite(own) & (returns.max(axis=1) > own + TIE)
        return np.where(better, returns.argmax(axis=1), actions)
