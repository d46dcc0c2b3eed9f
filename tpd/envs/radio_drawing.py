"""Draws the radio network."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tpd.core.types import Array

SCALE, SIDE = 2, 200
"""Pixels per metre, and the side of the map in metres."""
RANGE = 69
"""Range of a cell, in metres."""
CELL, LINK, PAPER, INK = "#1f4e79", "#7f8fa6", "#ffffff", "#202020"
BAD, GOOD = np.array([200, 40, 40]), np.array([40, 150, 70])


def draw_network(
    stations: Sequence[Any], serving: Mapping[Any, Any], utilities: Mapping[Any, float]
) -> Array:
    """[height, width, 3]: cells with their ranges, users from red to green by utility, and their links."""
    picture = Image.new("RGB", (SIDE * SCALE, SIDE * SCALE), PAPER)
    draw = ImageDraw.Draw(picture)
    for station in stations:
        draw.ellipse(_around(station, RANGE * SCALE), outline=LINK)
    for user, station in serving.items():
        if station is not None:
            draw.line([_place(user), _place(station)], fill=LINK, width=2)
    for station in stations:
        draw.rectangle(_around(station, 9), fill=CELL)
        draw.text(_place(station), "ABC"[station.bs_id], fill=PAPER, anchor="mm")
    for user in serving:
        share = (utilities.get(user, -1.0) + 1) / 2
        colour = tuple(int(value) for value in BAD + share * (GOOD - BAD))
        draw.ellipse(_around(user, 9), fill=colour, outline=INK)
        draw.text(_place(user), str(user.ue_id + 1), fill=PAPER, anchor="mm")
    return np.asarray(picture)


def _place(thing: Any) -> tuple[float, float]:
    return thing.x * SCALE, (SIDE - thing.y) * SCALE


def _around(thing: Any, reach: float) -> tuple[float, float, float, float]:
    x, y = _place(thing)
    return x - reach, y - reach, x + reach, y + reach
