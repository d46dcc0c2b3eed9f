"""Forecasts against what really happened, in fresh episodes that nobody learned from."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import BoolArray, Episodes, FloatArray, IntArray, Transitions
from tpd.core.verdicts import Verdict
from tpd.evaluation.skill import Judged, Scores, judge, ratio, score, with_all
from tpd.evaluation.windows import Columns, Course, Tally
from tpd.predictors.explainer import Explainer

Skills = TypeVar("Skills")
TERMINATED, RETURN = "terminated", "return"
ALL = "all"
CELLS = 2_000_000  # predictions held at once
SIMULATED = 1000
"""Steps that are forecast, at most, where a forecast is simulated."""


@dataclass(frozen=True)
class Reliability:
    """How often events happened that were forecast with much the same probability.

    Forecasts fall into bins of equal width, those outside of [0, 1] into the outermost.
    """

    windows: IntArray
    """[..., bin]; 0 for outcomes that are no events"""
    forecast: FloatArray
    """[..., bin]: mean forecast; NaN where there are no windows"""
    frequency: FloatArray
    """[..., bin]: share of windows in which the event happened"""


@dataclass(frozen=True)
class ForecastSkill:
    """What came of the forecasts, by outcome and by how far ahead they look."""

    names: tuple[str, ...]
    """[outcome]: termination among them, and last the return where the outcomes account for the reward"""
    is_event: tuple[bool, ...]
    """[outcome]"""
    by_horizon: Scores
    """[horizon, outcome]: of what happens at a step"""
    at: Judged
    """Of what happens within ranges of steps, such as "5-14"; the last range is all of them."""
    by: Judged
    """Of sums up to a step, such as "by 15": of a first occurrence or an event that ends the episode,
    whether it has happened by then."""
    bins: Reliability
    """[range, outcome, bin]"""
    unknown: float
    """Share of steps whose pair has no support; they are left out."""
    episodes: int
    """How many were played."""

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
        """Over all horizons, and over the outcomes of which something can be known; NaN if there are none."""
        skill = self.at.scores.skill[-1][[name != RETURN for name in self.names]]
        known = skill[~np.isnan(skill)]
        return float(known.mean()) if len(known) else float("nan")

    @property
    def learned(self) -> float:
        """Share of the outcomes and steps ("by 5") that are learned, of those not too rare to tell."""
        told = self.by.verdict[~np.isin(self.by.verdict, (Verdict.TOO_RARE, Verdict.UNANSWERABLE))]
        return float((told == Verdict.LEARNED).mean()) if len(told) else float("nan")

    def frame(self) -> pd.DataFrame:
        """A row for each outcome and range."""
        parts = [_frame(self.names, judged) for judged in (self.at, self.by)]
        both = pd.concat(parts, ignore_index=True)
        order = {name: k for k, name in enumerate(self.names)}
        return both.iloc[np.argsort(both["outcome"].map(order), kind="stable")].reset_index(drop=True)

    def reliability(self, name: str, steps: str = ALL) -> Reliability:
        """[bin]: how far one event happened as often as forecast."""
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
    """Compare what is expected of every pair met with what then happened.

    After a termination nothing happens any more, which is an observation too. After an episode was
    cut nobody knows, so those windows are left out, and so is every window that a time limit would
    have cut had the episode not terminated before: to keep only those that did would be a choice by
    what happened. With `foils`, the pairs are those that the policy did not choose, and windows end where
    it is left again; the episodes should leave it at most once within the horizon.

    A predictor that simulates is asked about some of the pairs, and about all of them where it predicts an
    outcome without simulating.
    """
    if explainer.legend.names != outcomes.legend.names:
        raise ValueError(
            f"the explainer forecasts {explainer.legend.names}, the outcomes are {outcomes.legend.names}"
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
    """The first, with the columns [outcome] that are taken from the other."""
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
    for steps in course.portions(max(1, CELLS // (predictor.horizon * outcomes.width))):
        pairs = episodes.transitions[steps]
        known = np.asarray(predictor.support(pairs.observation, pairs.action) > 0)
        known_steps += int(known.sum())
        if known.any():
            forecast = explainer.predict(pairs.observation[known], pairs.action[known])
            _check_finite(forecast, pairs[known])
            tally.add(course, steps[known], forecast)
    if explainer.limits is not None:
        tally.leave_out(*(part[0] == Verdict.UNANSWERABLE for part in vars(explainer.limits).values()))
    ranges, by = step_ranges(predictor.horizon), by_steps(predictor.horizon)
    names = [f"{steps[0]}-{steps[-1]}" if len(steps) > 1 else f"{steps[0]}" for steps in ranges]
    starts = [steps.start for steps in ranges]
    once = columns.is_event & _once(columns, course)
    return ForecastSkill(
        names=columns.names,
        is_event=tuple(columns.is_event.tolist()),
        by_horizon=score(tally.at.sum(axis=0)),
        at=judge((*names, ALL), tally.at, starts, columns.is_event),
        by=judge(tuple(f"by {step}" for step in by), tally.by[:, :, by], None, once),
        bins=_reliability(tally.bins, starts),
        unknown=1 - known_steps / max(1, len(course.steps)),
        episodes=len(episodes),
    )


def _columns(explainer: Explainer, outcomes: OutcomeSet) -> Columns:
    """Every outcome, termination unless it is among them, and the return."""
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
    """[column]: what cannot happen twice, so that its sum is a probability: it ends what is asked of it."""
    again = (course.outcome > 0) & (course.continuation > 0)
    once = ~again[:, : columns.kept].any(axis=0)
    return np.concatenate([once, np.zeros(len(columns.names) - columns.kept, dtype=np.bool_)])


def step_ranges(horizon: int) -> list[range]:
    """The first step, then a sixth, a third and a half of all steps: 0, 1-4, 5-14, 15-29 of 30."""
    cuts = sorted({0, 1, max(1, horizon // 6), max(1, horizon // 2), horizon})
    return [range(start, stop) for start, stop in pairwise(cuts)]


def by_steps(horizon: int) -> list[int]:
    """The steps by which something has happened or not: 5, 15 and 29 of 30."""
    return sorted({min(step, horizon - 1) for step in (horizon // 6, horizon // 2, horizon - 1)})


def _check_finite(forecast: FloatArray, pairs: Transitions) -> None:
    wrong = ~np.isfinite(forecast).all(axis=(1, 2))
    if wrong.any():
        pair = pairs.describe(int(np.argmax(wrong)))
        raise ValueError(f"a forecast with support must be finite, but is not at {pair}")


def _reliability(bins: FloatArray, starts: Sequence[int]) -> Reliability:
    windows, forecast, observed = (with_all(part, starts, axis=0) for part in bins)
    return Reliability(np.rint(windows).astype(np.int64), ratio(forecast, windows), ratio(observed, windows))
