"""Forecast skill: compares predictions with what happened in fresh episodes, not used for learning."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tpd.core.outcomes import Legend, OutcomeSet
from tpd.core.pairs import blocks
from tpd.core.types import BoolArray, Episodes, FloatArray, IntArray, Transitions
from tpd.core.verdicts import Verdict, Verdicts, is_limit
from tpd.evaluation.skill import Judged, Scores, judge, ratio, score, with_all
from tpd.evaluation.windows import Columns, Course, Tally
from tpd.predictors.explainer import Explainer

Skills = TypeVar("Skills")
TERMINATED, RETURN = "terminated", "return"
ALL = "all"
CELLS = 2_000_000  # predictions kept in memory at once
SIMULATED = 1000
"""Maximum number of forecast steps for a predictor that simulates."""


@dataclass(frozen=True)
class Reliability:
    """Data of a reliability diagram: observed frequency of events by bin of forecast probability.

    Bins have equal width; forecasts outside [0, 1] fall into the outermost bins.
    """

    windows: IntArray
    """[..., bin]: number of windows; 0 for outcomes that are not events"""
    forecast: FloatArray
    """[..., bin]: mean forecast; NaN without windows"""
    frequency: FloatArray
    """[..., bin]: fraction of windows in which the event happened"""


@dataclass(frozen=True)
class ForecastSkill:
    """Scores of forecasts by outcome and by steps ahead."""

    names: tuple[str, ...]
    """[outcome]: includes termination and, last, the return if the outcomes account for the reward"""
    is_event: tuple[bool, ...]
    """[outcome]"""
    by_horizon: Scores
    """[horizon, outcome]: scores of forecasts at each step"""
    at: Judged
    """Scores of forecasts at steps, pooled over ranges such as "5-14"; the last range is all steps."""
    by: Judged
    """Scores of forecasts of sums up to a step, such as "by 15". For a first occurrence or an event that ends
    the episode, the sum is whether it has happened by then."""
    bins: Reliability
    """[range, outcome, bin]"""
    unknown: float
    """Fraction of steps whose pair has no support; they are left out."""
    episodes: int
    """Number of fresh episodes."""

    def metrics(self, prefix: str = "") -> dict[str, float]:
        """Flat names and values: `<event>/brier`, `<event>/skill` over all horizons, `<event>/skill_by_5`."""
        table = dict[str, float]()
        for k, (name, is_event) in enumerate(zip(self.names, self.is_event, strict=True)):
            table[f"{name}/{prefix}{'brier' if is_event else 'score'}"] = float(self.at.scores.score[-1, k])
            table[f"{name}/{prefix}skill"] = float(self.at.scores.skill[-1, k])
            for row, steps in enumerate(self.by.ranges):
                key = f"{prefix}skill_{steps.replace(' ', '_')}"
                table[f"{name}/{key}"] = float(self.by.scores.skill[row, k])
        overall = {
            "windows": float(self.at.scores.windows[-1]),
            "unknown": self.unknown,
            "skill": self.mean_skill,
            "learned": self.learned,
        }
        return table | {f"forecasts/{prefix}{name}": value for name, value in overall.items()}

    @property
    def mean_skill(self) -> float:
        """The mean skill over all steps and all outcomes with a defined skill; NaN if there are none."""
        skill = self.at.scores.skill[-1][[name != RETURN for name in self.names]]
        known = skill[~np.isnan(skill)]
        return float(known.mean()) if len(known) else float("nan")

    @property
    def learned(self) -> float:
        """Fraction of (outcome, "by step") forecasts that are learned, among those not too rare to tell."""
        told = self.by.verdict[~np.isin(self.by.verdict, (Verdict.TOO_RARE, Verdict.UNANSWERABLE))]
        return float((told == Verdict.LEARNED).mean()) if len(told) else float("nan")

    def frame(self) -> pd.DataFrame:
        """One row for each outcome and range."""
        both = pd.concat([_frame(self.names, judged) for judged in (self.at, self.by)], ignore_index=True)
        order = {name: k for k, name in enumerate(self.names)}
        return both.iloc[np.argsort(both["outcome"].map(order), kind="stable")].reset_index(drop=True)

    def reliability(self, name: str, steps: str = ALL) -> Reliability:
        """[bin]: the reliability diagram of one event."""
        b, k = self.at.ranges.index(steps), self.names.index(name)
        return Reliability(self.bins.windows[b, k], self.bins.forecast[b, k], self.bins.frequency[b, k])


def _frame(names: Sequence[str], judged: Judged) -> pd.DataFrame:
    shape, scores = (len(names), len(judged.ranges)), judged.scores
    columns = {
        "outcome": np.repeat(names, shape[1]),
        "range": np.tile(judged.ranges, shape[0]),
        "base_rate": scores.base_rate.T.ravel(),
        "score": scores.score.T.ravel(),
        "reference": scores.reference.T.ravel(),
        "skill": scores.skill.T.ravel(),
        "skill_error": judged.skill_error.T.ravel(),
        "skill_bound": judged.skill_bound.T.ravel(),
        "windows": np.tile(scores.windows, shape[0]),
        "episodes": judged.episodes.T.ravel(),
        "verdict": [Verdict(int(verdict)).words for verdict in judged.verdict.T.ravel()],
    }
    return pd.DataFrame(columns)


def forecast_skill(
    explainer: Explainer, outcomes: OutcomeSet, episodes: Episodes, foils: bool = False
) -> ForecastSkill:
    """Compare the predictions for every visited pair with what happened next.

    After termination nothing happens, which counts as observed. After a truncation the future is unobserved,
    so those windows are left out. Windows that a time limit would have cut, had the episode not terminated
    before, are left out too: keeping them would select windows by their outcome. With `foils`, the pairs are
    those whose action is not the policy's, and windows end at the next such action; episodes should have at
    most one within the horizon.

    A predictor that simulates is evaluated on a sample of the pairs; outcomes that it predicts without
    simulation are evaluated on all pairs.
    """
    if explainer.legend.names != outcomes.legend.names:
        raise ValueError(
            f"the explainer predicts {explainer.legend.names}, but the outcomes are {outcomes.legend.names}"
        )
    course = Course(outcomes, episodes, foils)
    if not explainer.simulates:
        return _skill(explainer, outcomes, episodes, course)
    quick, unsimulated = explainer.unsimulated or (None, np.zeros(outcomes.width, dtype=np.bool_))
    whole = None if quick is None else _skill(quick, outcomes, episodes, course)
    course.thin(SIMULATED, by_steps(explainer.predictor.horizon))
    simulated = _skill(explainer, outcomes, episodes, course)
    if whole is None:
        return simulated
    taken, kept = np.zeros(len(simulated.names), dtype=np.bool_), _columns(explainer, outcomes).kept
    taken[:kept] = unsimulated[:kept]
    return _with_columns(simulated, whole, taken)


def _with_columns(one: Skills, other: Skills, taken: BoolArray) -> Skills:
    """The first, with the columns `taken` [outcome] replaced by those of the other."""
    values = dict[str, Any]()
    for each in fields(one):  # type: ignore[arg-type]
        mine, theirs = getattr(one, each.name), getattr(other, each.name)
        if is_dataclass(mine):
            values[each.name] = _with_columns(mine, theirs, taken)
        elif isinstance(mine, np.ndarray) and mine.ndim > 1:
            values[each.name] = np.where(taken.reshape(-1, *(1,) * (mine.ndim - 2)), theirs, mine)
    return replace(one, **values)  # type: ignore[type-var]


def _skill(explainer: Explainer, outcomes: OutcomeSet, episodes: Episodes, course: Course) -> ForecastSkill:
    predictor, columns = explainer.predictor, _columns(explainer, outcomes)
    tally = Tally(len(episodes), predictor.horizon, columns)
    known_steps = 0
    for some in blocks(len(course.steps), max(1, CELLS // (predictor.horizon * outcomes.width))):
        steps = course.steps[some]
        pairs = episodes.transitions[steps]
        known = np.asarray(predictor.support(pairs.observation, pairs.action) > 0)
        known_steps += int(known.sum())
        if known.any():
            forecast = explainer.predict(pairs.observation[known], pairs.action[known])
            _check_finite(forecast, pairs[known])
            tally.add(course, steps[known], forecast)
    if explainer.limits is not None:
        tally.leave_out(*(is_limit(part[0]) for part in vars(explainer.limits).values()))
    ranges, by = step_ranges(predictor.horizon), by_steps(predictor.horizon)
    names = [f"{steps[0]}-{steps[-1]}" if len(steps) > 1 else f"{steps[0]}" for steps in ranges]
    starts = [steps.start for steps in ranges]
    once = columns.is_event & _once(columns, course)
    windows, forecasts, observed = (with_all(part, starts, axis=0) for part in tally.bins)
    return ForecastSkill(
        names=columns.names,
        is_event=tuple(columns.is_event.tolist()),
        by_horizon=score(tally.at.sum(axis=0)),
        at=judge((*names, ALL), tally.at, starts, columns.is_event),
        by=judge(tuple(f"by {step}" for step in by), tally.by[:, :, by], None, once),
        bins=Reliability(
            np.rint(windows).astype(np.int64), ratio(forecasts, windows), ratio(observed, windows)
        ),
        unknown=1 - known_steps / max(1, len(course.steps)),
        episodes=len(episodes),
    )


def _columns(explainer: Explainer, outcomes: OutcomeSet) -> Columns:
    """The forecast columns: every outcome, termination, and the return."""
    names, is_event = [o.name for o in outcomes.outcomes], [o.is_event for o in outcomes.outcomes]
    if TERMINATED not in names:
        names.append(TERMINATED)
        is_event.append(True)
    kept, weights, discount = len(names), None, explainer.policy.discount
    if outcomes.accounts_for_reward and RETURN not in names:
        weights = np.append(outcomes.legend.rewards, 0.0)
        names.append(RETURN)
        is_event.append(False)
    return Columns(tuple(names), np.array(is_event), kept, weights, discount)


def _once(columns: Columns, course: Course) -> BoolArray:
    """[column]: what happens at most once, so that its sum up to a step is a probability."""
    again = (course.outcome > 0) & (course.continuation > 0)
    once = ~again[:, : columns.kept].any(axis=0)
    return np.concatenate([once, np.zeros(len(columns.names) - columns.kept, dtype=np.bool_)])


def step_ranges(horizon: int) -> list[range]:
    """Ranges of steps: the first step, then up to a sixth, a half and all: 0, 1-4, 5-14, 15-29 of 30."""
    cuts = sorted({0, 1, max(1, horizon // 6), max(1, horizon // 2), horizon})
    return [range(start, stop) for start, stop in pairwise(cuts)]


def by_steps(horizon: int) -> list[int]:
    """The steps at which sums ("by step h") are judged: 5, 15 and 29 of 30."""
    return sorted({min(step, horizon - 1) for step in (horizon // 6, horizon // 2, horizon - 1)})


def _check_finite(forecast: FloatArray, pairs: Transitions) -> None:
    wrong = ~np.isfinite(forecast).all(axis=(1, 2))
    if wrong.any():
        pair = pairs.describe(int(np.argmax(wrong)))
        raise ValueError(
            f"the predictor's forecast for {pair} is not finite: learn again, for a network with a smaller "
            "learning rate (explainer.learning_rate)"
        )


def verdicts(policy: ForecastSkill, foil: ForecastSkill | None, legend: Legend) -> Verdicts:
    """[2, ...]: on the policy's own actions and on foils; `NOT_JUDGED` if there are no foils."""
    own = _by_step(policy, legend)
    if foil is not None:
        return own.joined(_by_step(foil, legend))
    return own.joined(Verdicts(*(np.full_like(part, Verdict.NOT_JUDGED) for part in vars(own).values())))


def _by_step(found: ForecastSkill, legend: Legend) -> Verdicts:
    """[1, ...]: each step has the verdict of its range; each sum that of the next judged step."""
    horizon = len(found.by_horizon.windows)
    at, by = (judged.verdict for judged in (found.at, found.by))
    ranges = np.repeat(np.arange(len(step_ranges(horizon))), [len(steps) for steps in step_ranges(horizon)])
    later = np.searchsorted(by_steps(horizon), np.arange(horizon))
    columns = [found.names.index(name) for name in (*legend.names, TERMINATED)]
    returns = np.full(horizon, Verdict.NOT_JUDGED)
    if RETURN in found.names and RETURN not in legend.names:
        returns = by[later, found.names.index(RETURN)]
    parts: list[IntArray] = [at[ranges][:, columns], by[later][:, columns], returns]
    return Verdicts(*(part[None].astype(np.int8) for part in parts))
