"""The context of an answer, kept for further questions: drivers of its forecasts, and the nearest state in
which the agent would choose the foil.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tpd.answers.drivers import (
    FEW,
    LEAST_BACKGROUND,
    MOST_LEFT_OUT,
    MOST_UNLIKE,
    Drivers,
    Group,
    correlated_groups,
    mixtures,
    plan,
    shapley,
    share_unlike,
)
from tpd.answers.nearest import NearestState, among_states_met, over_fields
from tpd.answers.sentences.drivers import contradiction, not_mixed, too_unlike
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST, Legend
from tpd.core.seeding import generator
from tpd.core.types import Array, BoolArray, FloatArray
from tpd.core.verdicts import Verdict
from tpd.envs import Environment
from tpd.envs.features import FeatureError, Features, features_of
from tpd.guards.settings import shown, whole_number
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.explainer import Explainer
from tpd.sources.states_met import StatesMet

AT_ONCE = 5000
"""States per batch of forecasts."""
MANY_EPISODES = 20
"""Episodes needed to tell visited states from others; if fewer are recorded, more are played."""
UNLEARNED = "nothing is learned yet, and this needs a learned forecast: call learn() first"
ELSEWHERE = (
    "against_foil needs a foil in the same state, which this answer does not have: ask again, "
    "why(..., foil=<action>)"
)


@dataclass(frozen=True)
class Forecast:
    """One number that an explainer predicts for a state: the sum of an outcome up to a step, after an action.

    With two actions it is the difference, first minus second.
    """

    explainer: Explainer
    env: Environment
    actions: tuple[Array, ...]
    """One or two, each [...]"""
    outcome: int
    """Its column."""
    by: int

    @property
    def name(self) -> str:
        return self.explainer.legend.names[self.outcome]

    @property
    def probability(self) -> bool:
        """Whether it is the probability that an event has happened, not a count or an amount."""
        return self.name.startswith(FIRST)

    def __call__(self, observations: Array) -> FloatArray:
        """[batch]; NaN where an action is not valid, or its future is unknown."""
        parts = np.array_split(observations, max(1, -(-len(observations) // AT_ONCE)))
        return np.concatenate([self._some(part) for part in parts])

    def of(self, explanations: Sequence[Explanation]) -> float | None:
        """The same number from explanations [1] of each action, such as rollouts; None without any."""
        found = [float(each.expected[0, : self.by + 1, self.outcome].sum()) for each in explanations]
        return None if not found else found[0] if len(self.actions) == 1 else found[0] - found[1]

    def _some(self, observations: Array) -> FloatArray:
        found = [self._after(observations, action) for action in self.actions]
        return found[0] if len(found) == 1 else found[0] - found[1]

    def _after(self, observations: Array, action: Array) -> FloatArray:
        repeated = np.repeat(np.asarray(action)[None], len(observations), axis=0)
        explanation = self.explainer.explain(observations, repeated)
        amount = explanation.expected[:, : self.by + 1, self.outcome].sum(axis=1)
        known = explanation.foreseen[:, self.by]
        if self.env.discrete:
            known = known & self.env.mask(observations)[:, int(action)]
        return np.where(known, np.clip(amount, 0, 1) if self.probability else amount, np.nan)


@dataclass(frozen=True)
class Asked:
    """The state and actions of an answer, and the explainer for them."""

    explainer: Explainer
    env: Environment
    observation: Array
    """[1, ...]"""
    fact: Array
    """[...]: an action"""
    foil: Array | None
    """[...]: an action in the same state; None if there is none"""
    names: tuple[str, ...]
    """The names of the fact and, if there is one, of the foil."""
    own: Array | None
    """[...]: the agent's action, if known"""
    met: Callable[[int], StatesMet]
    """Number of episodes -> states that the agent visits, from recorded episodes if there are enough; raises
    ValueError if there are none"""
    rolled_out: tuple[Explanation, ...] = ()
    """[1] each: fact and foil by rollouts, if the simulator was used"""

    def drivers(self, event: str | None = None, by: int | None = None, against_foil: bool = False) -> Drivers:
        """See `Answer.drivers`."""
        if not self.explainer.informed:
            raise ValueError(UNLEARNED)
        if against_foil and self.foil is None:
            raise ValueError(ELSEWHERE)
        explained = [self._explain(action) for action in (self.fact, self.foil) if action is not None]
        needed = explained[: 2 if against_foil else 1]
        outcome = _decisive(explained, against_foil) if event is None else column_of(needed[0].legend, event)
        step = _last_told(needed, outcome) if by is None else whole_number("by", by, 0, needed[0].horizon - 1)
        actions = (self.fact, self.foil) if against_foil and self.foil is not None else (self.fact,)
        forecast = Forecast(self._fastest(outcome), self.env, actions, outcome, step)
        nothing = Drivers(
            _in_words(forecast, self.names),
            probability=forecast.probability,
            against=against_foil,
            rolled_out=forecast.of(self.rolled_out),
        )
        if reason := _not_told(needed, outcome, step, self.names):
            return replace(nothing, withheld=reason)
        try:
            features, met = features_of(self.env, self.observation), self.met(MANY_EPISODES)
        except FeatureError as error:
            return replace(nothing, withheld=str(error))
        return self._worked_out(nothing, forecast, features, met)

    def _worked_out(self, empty: Drivers, forecast: Forecast, features: Features, met: StatesMet) -> Drivers:
        rng = generator(0, "drivers")
        rows, here = features.rows(met.observations), features.rows(self.observation)[0]
        groups = correlated_groups(rows, features.names)
        planned = plan(len(groups), forecast.explainer.simulates)
        background = features.rows(met.sample(planned.background, rng).observations)
        if not self._counted:
            unlike = share_unlike(mixtures(here, background, groups, rng), rows, met.episode, rng)
            empty = replace(empty, unlike=unlike)
            if not unlike <= MOST_UNLIKE:
                return replace(empty, withheld=too_unlike(unlike))
        found = shapley(
            lambda mixed: forecast(features.observations(mixed)), here, background, groups, rng, planned.exact
        )
        if found.background < max(LEAST_BACKGROUND, (1 - MOST_LEFT_OUT) * len(background)):
            return replace(empty, withheld=not_mixed(len(background) - found.background, len(background)))
        drivers = replace(
            empty,
            **found._asdict(),
            names=tuple(group.name for group in groups),
            shown=tuple(_shown(features, group, here) for group in groups),
            data=here[[group.columns[0] for group in groups]],
        )
        return replace(empty, withheld=contradiction(drivers)) if drivers.contradicted else drivers

    def nearest_state(self) -> NearestState:
        """See `Answer.nearest_state`."""
        if self.foil is None:
            raise ValueError(ELSEWHERE)
        policy, nothing = self.explainer.policy, NearestState(self.names[1])
        if isinstance(policy, AbsentPolicy):
            return replace(nothing, withheld=f"the agent is not available ({policy.reason})")
        if not self.env.discrete:
            return replace(nothing, withheld="its actions are not discrete")
        if self.own is not None and int(self.own) == int(self.foil):
            return replace(nothing, withheld="it does so in this state")
        try:
            features = features_of(self.env, self.observation)
        except FeatureError as error:
            return replace(nothing, withheld=str(error))
        if features.fields is not None:
            found = over_fields(features.fields, int(self.observation[0]), self._switches)
        else:
            found = among_states_met(features, self.observation, self.met(1).observations, self._switches)
        return found.described(nothing, features, self.observation)

    def _switches(self, observations: Array) -> BoolArray:
        """[batch]: whether the agent chooses the foil, which must be valid and, in a table, tried."""
        assert self.foil is not None
        foil = np.full(len(observations), int(self.foil))
        switches = self.explainer.policy.action(observations) == foil
        switches &= self.env.mask(observations)[:, int(self.foil)]
        if self.explainer.informed and self._counted:
            switches &= self.explainer.predictor.support(observations, foil) > 0
        return np.asarray(switches)

    @property
    def _counted(self) -> bool:
        """Whether the amount of data is known for every single pair."""
        explanation = self._explain(self.fact)
        return explanation.counted or bool(explanation.certain.all())

    def _explain(self, action: Array) -> Explanation:
        return self.explainer.explain(self.observation, np.asarray(action)[None])

    def _fastest(self, outcome: int) -> Explainer:
        """The explainer that predicts the outcome without simulation, if there is one."""
        quick = self.explainer.unsimulated
        return quick[0] if quick is not None and quick[1][outcome] else self.explainer


def _shown(features: Features, group: Group, here: FloatArray) -> str:
    """A group of features as text, with their values if there are few."""
    if len(group.columns) > FEW:
        return group.name
    return " and ".join(f"{features.names[k]} = {features.shown(k, here[k])}" for k in group.columns.tolist())


def column_of(legend: Legend, event: str) -> int:
    """The column of an outcome; for an event, that of its first occurrence if there is one."""
    names = legend.names
    for name in (f"{FIRST}{event}", event):
        if name in names:
            return names.index(name)
    raise ValueError(f"event: there is no outcome {shown(event)}; the outcomes are {', '.join(names)}")


def _decisive(explained: list[Explanation], against_foil: bool) -> int:
    """The column of the learned event with the most at stake: probability times reward.

    Without rewards, the most likely event; in a comparison, the one that differs most.
    """
    legend = explained[0].legend
    events = [name for name in legend.names if name in legend.events]
    candidates = [name for name in events if name.startswith(FIRST)] or events
    if not candidates:
        raise ValueError(f"event: no outcome is an event; pass one of the outcomes {', '.join(legend.names)}")
    rewards = dict(zip(legend.names, legend.weights, strict=True))

    def stake(name: str) -> tuple[bool, float, float]:
        k = legend.names.index(name)
        amounts = [float(one.expected[0, :, k].sum()) for one in explained]
        moved = abs(amounts[0] - amounts[-1]) if against_foil else max(amounts)
        told = all(one.told.by[0, :, k].any() for one in explained[: 2 if against_foil else 1])
        return told, moved * abs(rewards.get(name.removeprefix(FIRST)) or 0.0), moved

    return legend.names.index(max(candidates, key=stake))


def _last_told(needed: list[Explanation], outcome: int) -> int:
    """The last step by which the outcome is learned; the last step if there is none."""
    told = np.logical_and.reduce([one.told.by[0, :, outcome] & one.foreseen[0] for one in needed])
    return int(np.flatnonzero(told)[-1]) if told.any() else needed[0].horizon - 1


def _not_told(needed: list[Explanation], outcome: int, by: int, names: tuple[str, ...]) -> str:
    """Why the forecast is not known in the state itself; empty if it is."""
    for one, name in zip(needed, names, strict=False):
        if not one.foreseen[0, by]:
            return f"too many of the state-action pairs that may follow {name} were never tried"
        if one.verdicts is not None and not one.told.by[0, by, outcome]:
            return f"after {name} it is {Verdict(one.verdicts.by[0, by, outcome]).words}"
    return ""


def _in_words(forecast: Forecast, names: tuple[str, ...]) -> str:
    event, by = forecast.name.removeprefix(FIRST), f"by step {forecast.by}"
    if len(forecast.actions) == 1:
        return f"{event} {by} after {names[0]}"
    more = "how much more likely" if forecast.probability else "how much more of"
    return f"{more} {event} is {by} after {names[0]} than after {names[1]}"
