"""HTML of explanations for notebooks: no scripts, every name escaped."""

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from tpd.core.formats import percent, significant
from tpd.core.types import BoolArray, FloatArray

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


def page(sections: Sequence[Section], headings: Sequence[str], left_out: int) -> str:
    """All sections below each other; headings stand above the strips and the columns beside them."""
    shown = "".join(_section(section, headings) for section in sections)
    more = f"<p>and {left_out} more</p>" if left_out else ""
    return f'{STYLE}<div class="tpd">{shown}{more}</div>'


def number(value: float, in_percent: bool) -> str:
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
    said = number(value, strip.in_percent)
    return f'<i{half} style="background-color:{strip.colour}{alpha:02x}" title="step {step}: {said}"></i>'
