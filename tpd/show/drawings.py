"""The `plot()` methods of answers, explanations, contrasts and other records."""

import io
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from tpd.answers.answer import Answer
from tpd.answers.drivers import Drivers
from tpd.answers.sentences.formatting import sentence
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation, together
from tpd.core.sections import MOST_SHOWN
from tpd.show import driver_bars, plots
from tpd.show.figures import page

if TYPE_CHECKING:  # slow to import, and not needed for an answer
    from tpd.evaluation.forecasts import ForecastSkill

DOTS_PER_INCH = 110
NO_BANDS = (
    "No bands: request them with explain(observations, draws=59); the errors of the predictor must be "
    "measured."
)


def answer(record: Answer) -> Figure:
    """One column per side with its state and its explanation; below, their difference and the sentences."""
    both = together([side.explanation for side in record.sides])
    return page(
        f"{record.compared}, {both.obtained}",
        both,
        [f"{side.state}: {side.action}" for side in record.sides],
        [side.picture for side in record.sides],
        [*record.sentences, *map(sentence, record.remarks)],
        None if record.foil is None else f"{record.fact.name} minus {record.foil.name}",
    )


def explanation(record: Explanation) -> Figure:
    """One column per pair, for the first few pairs."""
    shown = record[:MOST_SHOWN]
    title = f"Expected outcomes, {shown.obtained}"
    if len(shown) < len(record):
        title += f"; the first {len(shown)} of {len(record)} pairs"
    names = [shown.name_of(row) for row in range(len(shown))]
    return page(title, shown, names, [None] * len(shown), _without_bands(shown))


def contrast(record: Contrast) -> Figure:
    """The first pair: fact, foil, and their difference."""
    both = together([record.fact[:1], record.foil[:1]])
    names, actions = zip(*((both.name_of(row), both.action_name(row)) for row in range(2)), strict=True)
    first, second = names if actions[0] == actions[1] else actions
    title = f"{first} against {second}, {both.obtained}"
    if len(record.fact) > 1:
        title += f"; the first of {len(record.fact)} pairs"
    return page(title, both, names, [None, None], _without_bands(both), f"{first} minus {second}")


def _without_bands(record: Explanation) -> list[str]:
    """A remark if lines could have bands but have none."""
    return [] if record.banded or record.certain.all() else [NO_BANDS]


def drivers(record: Drivers) -> Figure:
    """One bar per feature of the state."""
    return driver_bars.draw(record)


def reliability(record: "ForecastSkill") -> Figure:
    """One panel per event: observed frequency against forecast probability."""
    from tpd.show import reliability as diagrams

    return diagrams.draw(record, "Reliability")


def picture(record: bytes) -> Figure:
    """A figure that was saved as a PNG."""
    with Image.open(io.BytesIO(record), formats=["PNG"]) as image:
        pixels = np.asarray(image.convert("RGB"))
    height, width = pixels.shape[:2]
    figure = plots.Page(figsize=(width / DOTS_PER_INCH, height / DOTS_PER_INCH), dpi=DOTS_PER_INCH)
    figure.figimage(pixels)
    return figure
