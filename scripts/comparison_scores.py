"""How good the answers of a method are: pure functions of what it said and what is true."""

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
"""Standard errors by which a true difference has to differ from 0 for its sign to be judged."""
TIE = 0.005
"""Of the largest difference of a world: smaller ones are ties, and their signs not judged."""
ROUNDING = 1e-6
Figures = dict[str, float]


@dataclass(frozen=True)
class Truth:
    """What is true of the pairs that all methods of one agent are asked about."""

    own: BoolArray
    """[pair]: whether it is the policy's action; the foil of the same moment comes next"""
    expected: FloatArray
    """[pair, horizon, outcome]"""
    rollouts: FloatArray
    """[pair]: by how many rollouts; inf where it is exact"""
    differences: FloatArray
    """[2, foil]: return of the policy's action minus that of the foil, to the horizon and to the end"""
    errors: FloatArray
    """[2, foil]: their standard errors"""
    legend: Legend
    decisive: tuple[str, ...]
    """The events that decide an episode."""


@dataclass(frozen=True)
class Said:
    """What a method says of the same pairs."""

    expected: FloatArray
    """[pair, horizon, outcome]; 0 where a pair is unknown to it"""
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
    """[pair, horizon, outcome] both: of what is expected at a step"""

    @classmethod
    def of(cls, explanation: Explanation, endless: bool) -> "Said":
        """What an explanation says, of the outcomes that it may tell."""
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
    """All pairs, one after the other, of a method that tells the same of each."""
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
    """Mean square errors of the probabilities of events at a step, and what rollouts would match them."""
    columns = [k for k, name in enumerate(truth.legend.names) if _is_plain_event(name, truth.legend)]
    if not said.told_at[: STEPS[-1] + 1, columns].all():
        return {}
    return _errors("at", said, said.expected[..., columns], truth.expected[..., columns], truth)


def errors_by(said: Said, truth: Truth) -> Figures:
    """The same that a decisive event has happened by a step, and for each of them."""
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
    """Of probabilities [pair, horizon, event] of known pairs, without the noise of the truth itself."""
    rollouts = truth.rollouts[:, None, None]
    spread = true * (1 - true)
    noise = np.where(np.isfinite(rollouts), spread / np.maximum(1, rollouts - 1), 0)
    squares = (expected - true) ** 2 - noise
    # to leave out cells by an estimate would favour those whose estimate is too far from 0 and 1
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
    """The Brier skill that follows from the errors at the policy's own actions [pair], without any luck."""
    said, true = said[truth.own], true[truth.own]
    reference = true.mean() * (1 - true.mean())
    if reference < ROUNDING:
        return float("nan")
    return float(1 - np.mean((said - true) ** 2 + true * (1 - true)) / reference)


def bands(said: Said, truth: Truth) -> Figures:
    """How often 90 % bands hold the probability of an event at a step, and their interval score."""
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
    """Which share of the differences of returns between policy and foil has the wrong sign.

    Only of moments in which both actions are known to the method and the true difference is clear.
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
