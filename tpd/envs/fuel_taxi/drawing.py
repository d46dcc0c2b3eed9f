"""Draws FuelTaxi, as text and as pixels."""

import numpy as np
from PIL import Image, ImageDraw
from PIL.ImageFont import load_default as default_font

from tpd.core.types import IntArray
from tpd.envs.fuel_taxi import rules
from tpd.envs.fuel_taxi.rules import State

CELL = 80
MARGIN = 16
GAUGE_WIDTH = 70
WALL = 6

GROUND, GRID, WALL_COLOUR, INK = "#f4f1ea", "#d8d3c7", "#444444", "#222222"
STATION_COLOUR, DESTINATION_COLOUR = "#cfe8dd", "#f7d9c4"
TAXI_EMPTY, TAXI_FULL, PERSON = "#f0c419", "#7bc47f", "#3b5ba5"
FUEL_GOOD, FUEL_LOW, GAUGE_BACK = "#2a9d8f", "#d1495b", "#e4dfd3"
LOW_FUEL = 5


def text(state: State, delivered: bool = False) -> str:
    """The map in letters: T the taxi (@ with the passenger), P the passenger, D destination, G station."""
    lines = ["+---------+"]
    for row in range(rules.SIZE):
        line = "|"
        for col in range(rules.SIZE):
            line += _letter(row, col, state, delivered)
            line += "|" if col == rules.SIZE - 1 or (row, col) in rules.WALLS_EAST_OF else ":"
        lines.append(line)
    lines.append("+---------+")
    gauge = "#" * state.fuel + "." * (rules.FULL_TANK - state.fuel)
    lines.append(f"fuel {state.fuel:2d}/{rules.FULL_TANK} [{gauge}]")
    whereabouts = "on board" if state.passenger else "waiting"
    lines.append(f"passenger {'delivered' if delivered else whereabouts}")
    return "\n".join(lines) + "\n"


def picture(state: State, delivered: bool = False) -> IntArray:
    """The map in pixels: [height, width, 3] of uint8."""
    side = rules.SIZE * CELL
    image = Image.new("RGB", (side + 3 * MARGIN + GAUGE_WIDTH, side + 2 * MARGIN), "white")
    draw = ImageDraw.Draw(image)
    draw.rectangle((MARGIN, MARGIN, MARGIN + side, MARGIN + side), fill=GROUND)
    _place(draw, rules.STATION, STATION_COLOUR, "gas")
    _place(draw, rules.DESTINATION, DESTINATION_COLOUR, "goal")
    for i in range(1, rules.SIZE):
        offset = MARGIN + i * CELL
        draw.line((offset, MARGIN, offset, MARGIN + side), fill=GRID)
        draw.line((MARGIN, offset, MARGIN + side, offset), fill=GRID)
    for row, col in rules.WALLS_EAST_OF:
        x, y = _corner(row, col + 1)
        draw.line((x, y, x, y + CELL), fill=WALL_COLOUR, width=WALL)
    draw.rectangle((MARGIN, MARGIN, MARGIN + side, MARGIN + side), outline=WALL_COLOUR, width=WALL // 2)
    _taxi(draw, state)
    if delivered or not state.passenger:
        x, y = _corner(*(rules.DESTINATION if delivered else rules.PASSENGER))
        _person(draw, x + 14, y + 64)
    _gauge(draw, state.fuel, rules.FULL_TANK, side)
    return np.asarray(image)


def _letter(row: int, col: int, state: State, delivered: bool) -> str:
    if (row, col) == (state.row, state.col):
        return "@" if state.passenger else "T"
    if (row, col) == rules.PASSENGER and not state.passenger and not delivered:
        return "P"
    return {rules.DESTINATION: "D", rules.STATION: "G"}.get((row, col), " ")


def _corner(row: int, col: int) -> tuple[int, int]:
    return MARGIN + col * CELL, MARGIN + row * CELL


def _place(draw: ImageDraw.ImageDraw, cell: tuple[int, int], colour: str, label: str) -> None:
    x, y = _corner(*cell)
    draw.rectangle((x, y, x + CELL, y + CELL), fill=colour)
    draw.text((x + CELL - 6, y + CELL - 4), label, fill=INK, font=default_font(15), anchor="rs")


def _taxi(draw: ImageDraw.ImageDraw, state: State) -> None:
    x, y = _corner(state.row, state.col)
    colour = TAXI_FULL if state.passenger else TAXI_EMPTY
    draw.rounded_rectangle((x + 22, y + 20, x + 58, y + 38), 8, fill=colour, outline=INK, width=2)
    draw.rounded_rectangle((x + 12, y + 32, x + 68, y + 52), 6, fill=colour, outline=INK, width=2)
    for wheel in (24, 56):
        draw.ellipse((x + wheel - 7, y + 45, x + wheel + 7, y + 59), fill=INK)
    if state.passenger:
        _person(draw, x + 40, y + 18)


def _person(draw: ImageDraw.ImageDraw, x: int, y: int) -> None:
    draw.ellipse((x - 6, y - 14, x + 6, y - 2), fill=PERSON)
    draw.pieslice((x - 10, y - 2, x + 10, y + 22), 180, 360, fill=PERSON)


def _gauge(draw: ImageDraw.ImageDraw, fuel: int, full: int, side: int) -> None:
    left = side + 2 * MARGIN
    top, bottom = MARGIN + 30, MARGIN + side - 30
    draw.text((left + GAUGE_WIDTH // 2, MARGIN + 2), "fuel", fill=INK, font=default_font(18), anchor="mt")
    draw.rectangle((left + 15, top, left + GAUGE_WIDTH - 15, bottom), fill=GAUGE_BACK)
    level = bottom - round((bottom - top) * fuel / full)
    colour = FUEL_LOW if fuel <= LOW_FUEL else FUEL_GOOD
    if fuel:
        draw.rectangle((left + 15, level, left + GAUGE_WIDTH - 15, bottom), fill=colour)
    draw.rectangle((left + 15, top, left + GAUGE_WIDTH - 15, bottom), outline=INK, width=2)
    draw.text(
        (left + GAUGE_WIDTH // 2, bottom + 6), f"{fuel}/{full}", fill=INK, font=default_font(20), anchor="mt"
    )
