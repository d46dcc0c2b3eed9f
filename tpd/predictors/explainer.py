"""The explainer: turns the predictions of a predictor into explanations of a policy."""

from dataclasses import replace

import numpy as np

from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.beyond import SeesBeyond, nothing_left
from tpd.core.explanation import Explanation
from tpd.core.first_occurrences import before_the_end, reconciled
from tpd.core.outcomes import Legend
from tpd.core.pairs import IN_MEMORY, blocks, row_numbers
from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, IntArray, Policy, Predictor
from tpd.core.verdicts import Verdicts
from tpd.guards.settings import whole_number
from tpd.guards.sizes import require_memory
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.abilities import DrawingPredictor, SimulatingPredictor, SolvingPredictor, TracksUnknown
from tpd.predictors.known_errors import KnownErrors
from tpd.predictors.pair_table import LimitedPredictor

ROUNDING = 1e-6


class Explainer:
    """A predictor with its policy, legend, verdicts and known errors.

    `explain` can be called at any time, also while the predictor is still learning.
    """

    def __init__(
        self,
        predictor: Predictor,
        policy: Policy,
        legend: Legend,
        verdicts: Verdicts | None = None,
        errors: KnownErrors | None = None,
    ) -> None:
        self.predictor, self.policy, self.legend = predictor, policy, legend
        self.verdicts, self.errors = verdicts, errors

    @property
    def simulates(self) -> bool:
        """Whether its predictor uses rollouts of a model, which takes milliseconds for each pair."""
        return isinstance(self.predictor, SimulatingPredictor) and self.predictor.simulates

    @property
    def unsimulated(self) -> "tuple[Explainer, BoolArray] | None":
        """An explainer without simulation, and which outcomes [outcome] it predicts; None if none."""
        if not isinstance(self.predictor, SimulatingPredictor) or self.predictor.unsimulated is None:
            return None
        predictor, outcomes = self.predictor.unsimulated
        return Explainer(predictor, self.policy, self.legend), outcomes

    @property
    def verdicts(self) -> Verdicts | None:
        """[2, ...]: on the policy's own actions and on foils, by fresh episodes; None if not judged.

        Verdicts expire when the predictor makes further updates. Only its `limits` remain.
        """
        judged = self._verdicts if self._judged_after == self._updates else None
        if self.limits is None:
            return judged
        return self.limits[np.zeros(2, dtype=np.int64)] if judged is None else judged | self.limits

    @verdicts.setter
    def verdicts(self, verdicts: Verdicts | None) -> None:
        self._verdicts, self._judged_after = verdicts, self._updates

    @property
    def limits(self) -> Verdicts | None:
        """[1, ...]: quantities that the predictor's method cannot predict; None if it predicts all."""
        return self.predictor.limits if isinstance(self.predictor, LimitedPredictor) else None

    @property
    def errors(self) -> KnownErrors | None:
        """The predictor's measured errors; None if not measured, or if it made updates since."""
        return self._errors if self._calibrated_after == self._updates else None

    @errors.setter
    def errors(self, errors: KnownErrors | None) -> None:
        self._errors, self._calibrated_after = errors, self._updates

    @property
    def informed(self) -> bool:
        """Whether its predictor has made updates, or needs none."""
        return self._updates != 0

    @property
    def _updates(self) -> object:
        """The number of updates of the predictor; None if it does not count them."""
        return getattr(self.predictor, "updates", None)

    def explain(self, observations: Array, actions: Array | None = None, draws: int = 0) -> Explanation:
        """Explain each pair of the batch; without `actions`, the actions of the policy.

        `draws` is the number of posterior samples. With them, if the predictor or its known errors can give
        them, the explanation has bands.
        """
        observations = np.asarray(observations)
        whole_number("draws", draws, at_least=0)
        if observations.ndim == 0:
            raise ValueError(f"observations must be a batch, got the single observation {observations}")
        if actions is None:
            actions = self.policy.action(observations)
        else:
            actions = np.asarray(actions)
            self._check(observations, actions)
        for name, given in (("observations", observations), ("actions", actions)):
            if given.dtype.kind == "f" and not np.isfinite(given).all():
                raise ValueError(f"{name} must be finite numbers, got {given[~np.isfinite(given)][0]}")
        predictor = self.predictor
        if isinstance(predictor, SolvingPredictor):
            predictor = predictor.solved()
        predicted = self._consistent(predictor.predict(observations, actions))
        unknown: FloatArray = np.zeros(predicted.shape[:2])
        if isinstance(predictor, TracksUnknown):
            unknown = predictor.unknown(observations, actions)
        drawn = None
        if draws and (isinstance(predictor, DrawingPredictor) or self.errors is not None):
            require_memory("the draws", (draws, *predicted.shape), "float32", "pass fewer pairs at once")
            drawn = self._draws(predictor, observations, actions, predicted, draws)
        support = predictor.support(observations, actions)
        values = self.policy.action_values(observations)
        return Explanation(
            observations=observations,
            actions=actions,
            expected=predicted[:, :, :-1],
            # mass that is not learned counts as running: too little data must not look like termination
            running=1 - np.cumsum(predicted[:, :, -1], axis=1) - unknown,
            support=support if self.informed else np.zeros_like(support),
            legend=self.legend,
            discount=self.policy.discount,
            agent_value=None if values is None else values[np.arange(len(actions)), actions],
            unknown=unknown,
            draws=drawn,
            verdicts=self._verdicts_of(observations, actions),
            remark=getattr(predictor, "remark", ""),
        )

    def to_the_end(self, explanation: Explanation) -> Explanation:
        """The explanation with the return after the horizon, if the predictor can estimate it."""
        predictor = self.predictor
        if isinstance(predictor, SolvingPredictor):
            predictor = predictor.solved()
        if not isinstance(predictor, SeesBeyond) or explanation.legend.reward_bound is None:
            return explanation
        if not (np.abs(explanation.running[:, -1]) + explanation.unknown[:, -1] > ROUNDING).any():
            return replace(explanation, beyond=nothing_left(len(explanation)))
        draws = 0 if explanation.draws is None else len(explanation.draws)
        pairs = explanation.observations, explanation.actions
        return replace(explanation, beyond=predictor.beyond(*pairs, self.policy, self.legend, draws))

    def _draws(
        self, predictor: Predictor, observations: Array, actions: Array, predicted: FloatArray, count: int
    ) -> FloatArray:
        """[count, batch, horizon, outcome]: posterior samples of `predicted` [batch, horizon, outcome + 1].

        Errors of two actions in one state are correlated only if the policy is available.
        """
        if isinstance(predictor, DrawingPredictor):
            drawn = predictor.draws(observations, actions, self.policy, count)[..., :-1]
        else:
            assert self.errors is not None
            if (foil := self.is_foil(observations, actions)) is None:
                places, foil = row_numbers(observations, actions), np.zeros(len(actions), dtype=np.bool_)
            else:
                places = row_numbers(observations)
            drawn = self.errors.draws(predicted, places, foil, count)[..., :-1]
        for some in blocks(len(actions)):
            drawn[:, some] = reconciled(drawn[:, some], self.legend)
        return drawn

    def with_known_errors(self, explanation: Explanation, draws: int) -> Explanation:
        """The explanation with posterior samples by the known errors, without predicting again."""
        end = np.diff(1 - explanation.running - explanation.unknown, axis=1, prepend=0)
        predicted = np.concatenate([explanation.expected, end[..., None]], axis=2)
        pairs = explanation.observations, explanation.actions
        return replace(explanation, draws=self._draws(self.predictor, *pairs, predicted, draws))

    def _verdicts_of(self, observations: Array, actions: Array) -> Verdicts | None:
        """[batch, ...]: verdicts for own actions or foils; the worse of both if that is unknown."""
        if self.verdicts is None:
            return None
        if (foil := self.is_foil(observations, actions)) is None:
            return self.verdicts.worst[np.zeros(len(actions), dtype=np.int64)]
        return self.verdicts[foil.astype(np.int64)]

    def is_foil(self, observations: Array, actions: Array) -> BoolArray | None:
        """[batch]: whether the policy would take another action; None if the policy is not available."""
        if isinstance(self.policy, AbsentPolicy):
            return None
        own = self.policy.action(observations)
        if own.dtype.kind == "f":
            return np.asarray(~np.isclose(own, actions).reshape(len(own), -1).all(axis=1))
        return np.asarray((own != actions).reshape(len(own), -1).any(axis=1))

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome + 1]: the expected outcomes of `explain`, then termination."""
        return self._consistent(self.predictor.predict(observations, actions))

    def _consistent(self, predicted: FloatArray) -> FloatArray:
        """The prediction with contradictions between separately learned outcomes removed.

        Predictions of a limited method are not probabilities of single steps, so they are not changed.
        """
        if self.limits is not None:
            return predicted
        return reconciled(before_the_end(predicted, self.legend), self.legend)

    def _check(self, observations: Array, actions: Array) -> None:
        if actions.ndim == 0 or len(actions) != len(observations):
            raise ValueError(f"{len(observations)} observations but actions of shape {actions.shape}")
        if not isinstance(self.policy, DiscretePolicy):
            return
        num_actions = self.policy.probabilities(observations).shape[1]  # refuses states that do not exist
        if actions.ndim != 1 or actions.dtype.kind not in "iu":
            raise ValueError(f"actions must be one whole number for each observation, got {actions}")
        wrong = (actions < 0) | (actions >= num_actions)
        if wrong.any():
            raise ValueError(f"actions must be numbered from 0 to {num_actions - 1}, got {actions[wrong][0]}")

    def action_returns(self, observations: Array) -> FloatArray:
        """[batch, num_actions]: expected return to the horizon of every action; NaN if unknown.

        A return is unknown if the action was never tried, if it may lead to an untried pair (with more than
        `TOLERATED` probability), or if the return is not learned.
        """
        if not isinstance(self.policy, DiscretePolicy):
            raise TypeError(
                "action_returns needs discrete actions; for others, use explain(observations, actions)"
            )
        observations = np.asarray(observations)
        num_actions = self.policy.probabilities(observations[:1]).shape[1]
        explanation = self.explain(
            np.repeat(observations, num_actions, axis=0), np.tile(np.arange(num_actions), len(observations))
        )
        known = explanation.foreseen[:, -1] & explanation.told.returns[:, -1]
        returns = np.where(known, explanation.expected_return[:, -1], np.nan)
        return returns.reshape(len(observations), num_actions)

    def preferred(self, observations: Array, actions: IntArray, valid: BoolArray) -> IntArray:
        """[batch]: like `favoured`, but the given action unless the band of the difference excludes 0.

        valid [batch, num_actions]: which actions are valid.
        """
        best = self.favoured(self.action_returns(observations), actions, valid)
        rows = np.flatnonzero(best != actions)
        for block in blocks(len(rows), IN_MEMORY):
            some = rows[block]
            pairs = np.concatenate([best[some], actions[some]])
            both = self.explain(np.concatenate([observations[some]] * 2), pairs, draws=ENOUGH_DRAWS)
            unsettled = some[~(both[: len(some)] - both[len(some) :]).settled]
            best[unsettled] = actions[unsettled]
        return best

    def favoured(self, returns: FloatArray, actions: IntArray, valid: BoolArray) -> IntArray:
        """[batch]: the valid action with the largest explained return, if better than the given action.

        The given action if none is better, or if its own return is unknown. `returns` come from
        `action_returns`; valid [batch, num_actions]: which actions are valid.
        """
        rows = np.arange(len(returns))
        others = np.where(valid & ~np.isnan(returns), returns, -np.inf)
        own, best = returns[rows, actions], others.argmax(axis=1)
        gain = others[rows, best] - own
        size = np.maximum(np.abs(others[rows, best]), np.abs(own))
        return np.where(gain > self.predictor.tie * size + ROUNDING, best, actions)
