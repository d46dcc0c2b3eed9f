"""Sentences about one row of an explanation or a contrast."""

from typing import Any

from tpd.answers.sentences.compare import ContrastNarrator
from tpd.answers.sentences.describe import Narrator
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation


def describe(explanation: Explanation, row: int, name: str) -> str:
    return Narrator(explanation[row : row + 1]).describe(0, name)


def compare(
    contrast: Contrast, row: int, fact: str, foil: str, chosen: str | None = None, tie: float = 0.0
) -> str:
    return _only(contrast, row, tie).compare(0, fact, foil, chosen)


def paragraph(
    contrast: Contrast,
    row: int,
    fact: str,
    foil: str,
    chosen: str | None = None,
    tie: float = 0.0,
    best: tuple[str, float] | None = None,
    **told: Any,
) -> str:
    return _only(contrast, row, tie).paragraph(0, fact, foil, chosen, best, **told)


def _only(contrast: Contrast, row: int, tie: float) -> ContrastNarrator:
    one = slice(row, row + 1)
    return ContrastNarrator(contrast.fact[one] - contrast.foil[one], tie)
