"""Scores of a method's answers: pure functions of its answers and the truth."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tpd.core.bands import LEVEL, Band
from tpd.core.explanation import Explanation
from tpd.core.intervals import clopper_pearson
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import BoolArray, FloatArray

STEPS = (1, 10, 29)
CLEAR = 3.0
"""A true difference must be this many standard errors from 0 for its sign to be judged."""
TIE = 0.005
"""Fraction of a world's largest difference; smaller differences are ties, whose signs are not judged."""
ROUNDING = 1e-6
Figures = dict[str, float]


@dataclass(frozen=True)
class Truth:
    """The truth about the pairs that all methods of one agent are asked about."""

    own: BoolArray
    """[pair]: whether it is the policy's action; the foil of the same moment comes next"""
    expected: FloatArray
    """[pair, horizon, outcome]"""
    rollouts: FloatArray
    """[pair]: the number of rollouts; inf if it is exact"""
    differences: FloatArray
    """[2, foil]: return of the policy's action minus that of the foil, to the horizon and to the end"""
    errors: FloatArray
    """[2, foil]: standard errors of the differences"""
    legend: Legend
    decisive: tuple[str, ...]
    """The events that decide an episode."""


@dataclass(frozen=True)
class Said:
    """A method's answers for the same pairs."""

    expected: FloatArray
    """[pair, horizon, outcome]; 0 if the method does not know the pair"""
    told_at: BoolArray
    """[horizon, outcome]"""
    told_by: BoolArray
    """[horizon, outcome]"""
    returns: FloatArray
    """[pair]: up to the horizon, or over an infinite one"""
    known: BoolArray
    """[pair]"""
    endless: bool
    """Whether returns are over an infinite horizon."""
    band: Band | None
    """[pair, horizon, outcome] for both limits: band of the expectation at each step"""

    @classmethod
    def of(cls, explanation: Explanation, endless: bool) -> "Said":
        """The answers of an explanation, for the outcomes that it may give."""
        known, told = explanation.known, explanation.told
        return cls(
            expected=np.where(known[:, None, None], explanation.expected, 0),
            told_at=np.asarray(told.at.all(axis=0)),
            told_by=np.asarray(told.by.all(axis=0)),
            returns=np.where(known, explanation.expected_return[:, -1], 0),
            known=known,
            endless=endless,
            band=explanation.band() if explanation.banded else None,
        )


def joined(parts: Sequence[Said]) -> Said:
    """All pairs, concatenated; the method must give the same outcomes for each."""
    bands = [part.band for part in parts if part.band is not None]
    ends = (np.concatenate([getattr(band, end) for band in bands]) for end in ("low", "high"))
    return Said(
        np.concatenate([part.expected for part in parts]),
        parts[0].told_at,
        parts[0].told_by,
        np.concatenate([part.returns for part in parts]),
        np.concatenate([part.known for part in parts]),
        parts[0].endless,
        Band(*ends) if len(bands) == len(parts) else None,
    )


def scores(said: Said, truth: Truth) -> Figures:
    """All figures that follow from the answers."""
    figures = {"known": float(said.known.mean())}
    figures |= errors_at(said, truth) | errors_by(said, truth) | bands(said, truth)
    return figures | contrasts(said, truth)


def errors_at(said: Said, truth: Truth) -> Figures:
    """Mean squared errors of event probabilities at a step, and the equivalent number of rollouts."""
    columns = [k for k, name in enumerate(truth.legend.names) if _is_plain_event(name, truth.legend)]
    if not said.told_at[: STEPS[-1] + 1, columns].all():
        return {}
    return _errors("at", said, said.expected[..., columns], truth.expected[..., columns], truth)


def errors_by(said: Said, truth: Truth) -> Figures:
    """The same for decisive events up to a step, together and separately."""
    firsts = [truth.legend.names.index(FIRST + event) for event in truth.decisive]
    if not said.told_by[: STEPS[-1] + 1, firsts].all():
        return {}
    expected, true = (np.cumsum(each[..., firsts], axis=1) for each in (said.expected, truth.expected))
    figures = _errors("by", said, expected, true, truth)
    for k, event in enumerate(truth.decisive):
        one = _errors("by", said, expected[..., [k]], true[..., [k]], truth)
        figures |= {f"{event}: {name}": value for name, value in one.items()}
        figures[f"{event}: skill by the moments"] = _skill(expected[:, -1, k], true[:, -1, k], truth)
    return figures


def _is_plain_event(name: str, legend: Legend) -> bool:
    return name in legend.events and not name.startswith(FIRST)


def _errors(what: str, said: Said, expected: FloatArray, true: FloatArray, truth: Truth) -> Figures:
    """Errors of probabilities [pair, horizon, event] of known pairs, corrected for noise in the truth."""
    rollouts = truth.rollouts[:, None, None]
    spread = true * (1 - true)
    noise = np.where(np.isfinite(rollouts), spread / np.maximum(1, rollouts - 1), 0)
    squares = (expected - true) ** 2 - noise
    # leaving out cells by an estimate would favour estimates too far from 0 and 1
    open_ = ((true > ROUNDING) & (true < 1 - ROUNDING)) | np.isfinite(rollouts)
    steps = [h for h in STEPS if h < true.shape[1]]
    figures = {f"{what} {h}": float(squares[said.known, h].mean()) for h in steps}
    for whose, rows in (("", said.known), (", policy", truth.own), (", foil", ~truth.own)):
        rows = rows & said.known
        figures[f"{what} all{whose}"] = float(squares[rows].mean()) if rows.any() else np.nan
        cells = open_ & rows[:, None, None]
        if cells.any():
            chance, error = float((spread + noise)[cells].mean()), float(squares[cells].mean())
            figures[f"{what} rollouts{whose}"] = chance / error if error > 0 else np.inf
    return figures


def _skill(said: FloatArray, true: FloatArray, truth: Truth) -> float:
    """The Brier skill implied by the errors at the policy's own actions [pair], without sampling noise."""
    said, true = said[truth.own], true[truth.own]
    reference = true.mean() * (1 - true.mean())
    if reference < ROUNDING:
        return float("nan")
    return float(1 - np.mean((said - true) ** 2 + true * (1 - true)) / reference)


def bands(said: Said, truth: Truth) -> Figures:
    """Coverage of the 90 % bands of event probabilities at a step, and their interval score."""
    columns = [k for k, name in enumerate(truth.legend.names) if _is_plain_event(name, truth.legend)]
    if said.band is None or not said.told_at[:, columns].all():
        return {}
    true, (low, high) = truth.expected[..., columns], (end[..., columns] for end in said.band)
    rollouts = np.broadcast_to(truth.rollouts[:, None, None], true.shape)
    drawn = np.isfinite(rollouts)
    trials = np.where(drawn, rollouts, 1)
    limits = clopper_pearson(np.rint(true * trials), trials)
    least, most = np.where(drawn, limits.low, true), np.where(drawn, limits.high, true)
    told = np.isfinite(low) & np.isfinite(high)
    open_ = told & (true > ROUNDING) & (true < 1 - ROUNDING)
    held = (low <= most + ROUNDING) & (least <= high + ROUNDING)
    missed = np.maximum(0, low - true) + np.maximum(0, true - high)
    score = high - low + 2 / (1 - LEVEL) * missed
    return {
        "band told": float(told.mean()),
        "covered": float(held[open_].mean()) if open_.any() else np.nan,
        "interval score": float(score[told].mean()) if told.any() else np.nan,
    }


def contrasts(said: Said, truth: Truth) -> Figures:
    """The fraction of return differences between policy and foil with the wrong sign.

    Only for moments where the method knows both actions and the true difference is clear.
    """
    foils = np.flatnonzero(~truth.own)
    difference = said.returns[foils - 1] - said.returns[foils]
    true, error = truth.differences[int(said.endless)], truth.errors[int(said.endless)]
    clear = np.abs(true) > np.maximum(CLEAR * error, TIE * np.abs(true).max(initial=0))
    known = said.known[foils - 1] & said.known[foils]
    judged = clear & known
    wrong = np.sign(difference) != np.sign(true)
    return {
        "contrasts": float(clear.sum()),
        "contrasts answered": float(judged.sum() / clear.sum()) if clear.any() else np.nan,
        "wrong sign": float(wrong[judged].mean()) if judged.any() else np.nan,
    }
