"""Notebook views of explanations and contrasts: one HTML section for each of the first pairs.

No scripts, and every name is escaped.
"""

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tpd.core.colours import colour
from tpd.core.formats import percent, significant
from tpd.core.outcomes import FIRST
from tpd.core.types import BoolArray, FloatArray
from tpd.core.verdicts import Verdict

if TYPE_CHECKING:
    from tpd.core.contrast import Contrast
    from tpd.core.explanation import Explained, Explanation

MOST_SHOWN = 3
"""How many pairs a notebook shows."""
SMALLEST_GAIN = 0.005
CONTRASTED = ("steps ahead (▀ more after the fact, ▄ the foil)", "fact, total", "foil, total")
STYLE = (
    "<style>"
    ".tpd table{border-collapse:collapse;margin:2px 0 12px}"
    ".tpd th,.tpd td{text-align:left;padding:1px 10px 1px 0;border:0;background:none;white-space:nowrap}"
    ".tpd th{font-weight:normal;color:#777}"
    ".tpd i{display:inline-block;box-sizing:border-box;width:11px;height:16px;border:1px solid #8883}"
    ".tpd i.up{padding-bottom:8px;background-clip:content-box}"
    ".tpd i.down{padding-top:8px;background-clip:content-box}"
    ".tpd i.unknown{background:repeating-linear-gradient(135deg,#999 0 1px,#fff 1px 4px)}"
    ".tpd b.colour{display:inline-block;width:10px;height:10px;margin-right:6px}"
    "</style>"
)


class Strip(NamedTuple):
    """One outcome over the steps ahead, as a row of cells; the larger the value, the fuller the colour."""

    name: str
    colour: str
    values: FloatArray
    """[horizon]"""
    full: float
    """The value of a cell in full colour."""
    in_percent: bool
    signed: bool
    """Gains fill the upper half of their cell, losses the lower half."""
    columns: Sequence[str]
    """Texts of the table columns beside the cells."""
    told: BoolArray
    """[horizon]: where a number may be reported because it was learned"""


class Section(NamedTuple):
    """One pair: its name, a remark on how well it is known, and its outcomes."""

    title: str
    remark: str
    strips: Sequence[Strip]
    known: BoolArray
    """[horizon]"""


def of_explanation(explanation: "Explanation") -> str:
    """The first pairs, as HTML."""
    pairs = len(explanation)
    shown = [_explained(explanation, row) for row in range(min(pairs, MOST_SHOWN))]
    return _page(shown, ("steps ahead", "total", "peak"), pairs - len(shown))


def of_contrast(contrast: "Contrast") -> str:
    """The first pairs of fact and foil and their differences, as HTML."""
    pairs = len(contrast.known)
    shown = [_contrasted(contrast, row) for row in range(min(pairs, MOST_SHOWN))]
    return _page(shown, CONTRASTED, pairs - len(shown))


def _explained(explanation: "Explanation", row: int) -> Section:
    strips = []
    for column, name in enumerate(explanation.legend.names):
        signed = name not in explanation.legend.events and (explanation.expected[row, :, column] < 0).any()
        said = _in_all(explanation, row, column), _peak(explanation, row, column)
        strips.append(_strip(explanation, explanation, row, column, bool(signed), said))
    title, remark = explanation.name_of(row), _remark(explanation, row)
    return Section(title, remark, strips, explanation.foreseen[row])


def _contrasted(contrast: "Contrast", row: int) -> Section:
    fact, foil = contrast.fact, contrast.foil
    strips = []
    for column in range(len(fact.legend.names)):
        said = _in_all(fact, row, column), _in_all(foil, row, column)
        strips.append(_strip(contrast, fact, row, column, True, said))
    remark = f"{_remark(fact, row)} against {_remark(foil, row)}"
    valued = fact.legend.reward_bound is not None
    if valued and contrast.foreseen[row, -1] and contrast.told.returns[row, -1]:
        remark += f"; {_worth(contrast, row)}"
    title = f"{fact.name_of(row)} against {foil.name_of(row)}"
    return Section(title, remark, strips, contrast.foreseen[row])


def _strip(
    shown: "Explained", side: "Explanation", row: int, column: int, signed: bool, said: tuple[str, str]
) -> Strip:
    """One outcome of a pair; name and colour come from `side`."""
    name, is_event = side.legend.names[column], bool(side.legend.is_event[column])
    full = 1.0 if is_event else float(np.abs(shown.expected[:, :, column]).max())
    values, told = shown.expected[row, :, column], shown.told.at[row, :, column]
    return Strip(name, colour(side.legend.names, name), values, full, is_event, signed, said, told)


def _worth(contrast: "Contrast", row: int) -> str:
    """The return difference, its band, and the components that make it up."""
    said = f"return difference {contrast.expected_return[row, -1]:+.2f}"
    if contrast.drawn:
        band = contrast.return_band()
        said += f" ({band.low[row, -1]:+.2f} to {band.high[row, -1]:+.2f})"
    gains = zip(contrast.fact.component_names, contrast.component_returns[row, -1], strict=True)
    largest = sorted(gains, key=lambda gain: -abs(gain[1]))
    told = dict(zip(contrast.fact.legend.names, contrast.told.by[row, -1], strict=True))
    parts = [f"{n} {gain:+.2f}" for n, gain in largest if abs(gain) >= SMALLEST_GAIN and told[n]]
    return f"{said}: {', '.join(parts)}" if parts else said


def _in_all(explanation: "Explanation", row: int, column: int) -> str:
    """The sum of an outcome over the horizon; for a first occurrence, its probability within the horizon."""
    if not explanation.foreseen[row, -1]:
        return "unknown"
    if not explanation.told.by[row, -1, column]:
        return _untold(explanation, row, column)
    first = explanation.legend.names[column].startswith(FIRST)
    return shown_number(float(explanation.expected[row, :, column].sum()), in_percent=first)


def _peak(explanation: "Explanation", row: int, column: int) -> str:
    """The largest expected value of an outcome and its step, among the known steps."""
    foreseen = explanation.foreseen[row]
    if not explanation.told.at[row, :, column].all():
        return _untold(explanation, row, column)
    values = np.where(foreseen, explanation.expected[row, :, column], 0)
    step = int(np.abs(values).argmax())
    if not values[step]:
        return "never" if foreseen.all() else "unknown"
    is_event = explanation.legend.names[column] in explanation.legend.events
    return f"{shown_number(float(values[step]), is_event)} at step {step}"


def _untold(explanation: "Explanation", row: int, column: int) -> str:
    """Why no number is reported for an outcome."""
    assert explanation.verdicts is not None
    every = np.maximum(explanation.verdicts.at, explanation.verdicts.by)
    return Verdict(every[row, :, column].max()).words


def _remark(explanation: "Explanation", row: int) -> str:
    """How well the pair is known, and its return."""
    visits = explanation.support[row]
    if not visits:
        return "never tried: unknown"
    unit = "visits" if explanation.counted else "transitions"
    said = "exact" if np.isinf(visits) else f"{visits:.0f} {unit}"
    if explanation.rollouts is not None:
        said = explanation.obtained
    if explanation.legend.reward_bound is None or not explanation.foreseen[row, -1]:
        return said
    if not explanation.told.returns[row, -1]:
        return f"{said}, return not learned"
    return f"{said}, return {explanation.expected_return[row, -1]:.3g} within {explanation.horizon} steps"


def _page(sections: Sequence[Section], headings: Sequence[str], left_out: int) -> str:
    """All sections below each other; headings stand above the strips and the columns beside them."""
    shown = "".join(_section(section, headings) for section in sections)
    more = f"<p>and {left_out} more</p>" if left_out else ""
    return f'{STYLE}<div class="tpd">{shown}{more}</div>'


def shown_number(value: float, in_percent: bool) -> str:
    """A value as text: probabilities and their differences in percent."""
    if not in_percent:
        return significant(value, 3)
    return percent(value) if value >= 0 else f"-{percent(-value)}"


def _section(section: Section, headings: Sequence[str]) -> str:
    named = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    rows = "".join(_row(strip, section.known) for strip in section.strips)
    return (
        f"<div><strong>{escape(section.title)}</strong> {escape(section.remark)}</div>"
        f"<table><tr><th></th>{named}</tr>{rows}</table>"
    )


def _row(strip: Strip, known: BoolArray) -> str:
    cells = "".join(_cell(strip, step, bool(known[step])) for step in range(len(known)))
    key = f'<b class="colour" style="background:{strip.colour}"></b>'
    said = "".join(f"<td>{escape(text)}</td>" for text in strip.columns)
    return f"<tr><td>{key}{escape(strip.name)}</td><td>{cells}</td>{said}</tr>"


def _cell(strip: Strip, step: int, known: bool) -> str:
    if not known:
        return f'<i class="unknown" title="step {step}: unknown"></i>'
    if not strip.told[step]:
        return f'<i class="unknown" title="step {step}: not learned"></i>'
    value = float(strip.values[step])
    alpha = round(255 * min(abs(value) / strip.full, 1)) if strip.full else 0
    half = f' class="{"up" if value > 0 else "down"}"' if strip.signed else ""
    said = shown_number(value, strip.in_percent)
    return f'<i{half} style="background-color:{strip.colour}{alpha:02x}" title="step {step}: {said}"></i>'
