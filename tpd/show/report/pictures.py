"""Pictures of states for a page; parts that change independently are drawn once, as layers."""

import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from tpd.core.types import Array, IntArray
from tpd.envs import Environment

WIDTH = 400
QUALITY = 60
MARGIN = 4
"""Pixels around a changing part, so that no edge of it remains visible."""
CHECKED = 8
"""Number of states whose composed picture is compared with a direct drawing."""

Fields = Mapping[str, Sequence[int | bool]]


class Box(NamedTuple):
    """A part of a picture, in pixels."""

    left: int
    top: int
    right: int
    bottom: int

    def overlaps(self, other: "Box") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def cut(self, picture: Array) -> Array:
        return picture[self.top : self.bottom, self.left : self.right]


@dataclass(frozen=True)
class Pictures:
    """Picture files, and which of them, one per layer, show each state."""

    files: tuple[bytes, ...]
    """WebP"""
    layers: tuple[tuple[float, float, float, float], ...]
    """Position of each layer as fractions of the picture: left, top, width, height."""
    shown: IntArray
    """[state, layer]: the index of the file"""


NO_PICTURES = Pictures((), (), np.zeros((0, 0), dtype=np.int32))
WHOLE = (0.0, 0.0, 1.0, 1.0)


def recorded(frames: Sequence[bytes], shown: IntArray) -> Pictures:
    """One file per state; shown [state] has its index."""
    return Pictures(tuple(frames), (WHOLE,), shown.astype(np.int32)[:, None])


def drawn(env: Environment, states: IntArray) -> Pictures:
    """Every state drawn by the environment; empty if it cannot draw."""
    if env.model is None or not env.drawable:
        return NO_PICTURES
    return recorded([_file(_draw(env, int(state))) for state in states], np.arange(len(states)))


def composed(env: Environment, fields: Fields) -> Pictures:
    """Pictures of every combination of the fields, the last one changing fastest.

    Fields that change separate parts of the picture are drawn as separate layers, so that few pictures
    suffice for many states.
    """
    if env.model is None or not env.drawable:
        return NO_PICTURES
    first = {name: values[0] for name, values in fields.items()}
    whole = _draw(env, _state(env, first))
    boxes = {name: _changing(env, fields, first, name, whole) for name in fields}
    apart = [name for name in fields if not any(_overlap(boxes, name, other) for other in fields)]
    groups = [[name for name in fields if name not in apart], *([name] for name in apart)]
    states = [[_state(env, first | chosen) for chosen in combinations(fields, group)] for group in groups]
    layers = [[_draw(env, state) for state in layer] for layer in states]
    changing = [box for name in apart if (box := boxes[name]) is not None]
    parts = [Box(0, 0, whole.shape[1], whole.shape[0]), *changing]
    shown = _shown(fields, groups)
    if not _composes(env, fields, layers, parts, shown):
        return drawn(env, np.array([_state(env, one) for one in combinations(fields)]))
    files = [_file(box.cut(one)) for box, layer in zip(parts, layers, strict=True) for one in layer]
    return Pictures(tuple(files), tuple(_shares(box, parts[0]) for box in parts), shown)


def combinations(fields: Fields, names: Sequence[str] | None = None) -> list[dict[str, int | bool]]:
    """Every combination of values of these fields (default: all); the last one changes fastest."""
    names = list(fields) if names is None else names
    values = itertools.product(*(fields[name] for name in names))
    return [dict(zip(names, chosen, strict=True)) for chosen in values]


def _changing(
    env: Environment, fields: Fields, first: Mapping[str, Any], name: str, whole: Array
) -> Box | None:
    """The part of the picture that a field changes; None if it changes nothing."""
    height, width = whole.shape[0], whole.shape[1]
    changed = np.zeros((height, width), dtype=np.bool_)
    for value in fields[name][1:]:
        changed |= (_draw(env, _state(env, {**first, name: value})) != whole).any(axis=2)
    rows, columns = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
    if not len(rows):
        return None
    return Box(
        max(int(columns[0]) - MARGIN, 0),
        max(int(rows[0]) - MARGIN, 0),
        min(int(columns[-1]) + 1 + MARGIN, width),
        min(int(rows[-1]) + 1 + MARGIN, height),
    )


def _overlap(boxes: Mapping[str, Box | None], name: str, other: str) -> bool:
    """Whether two fields change the same part; one that changes nothing by itself overlaps all."""
    one, two = boxes[name], boxes[other]
    return name != other and (one is None or two is None or one.overlaps(two))


def _shown(fields: Fields, groups: Sequence[Sequence[str]]) -> IntArray:
    """[state, layer]: the index of the file, if the files of the layers are concatenated."""
    sizes = [len(values) for values in fields.values()]
    indices = dict(zip(fields, np.indices(sizes).reshape(len(sizes), -1), strict=True))
    layers, begin = [], 0
    for group in groups:
        shape = tuple(len(fields[name]) for name in group)
        number = np.ravel_multi_index([indices[name] for name in group], shape) if group else 0
        layers.append(np.broadcast_to(begin + number, indices[next(iter(fields))].shape))
        begin += int(np.prod(shape))
    return np.stack(layers, axis=1).astype(np.int32)


def _composes(
    env: Environment, fields: Fields, layers: Sequence[Sequence[Array]], parts: Sequence[Box], shown: IntArray
) -> bool:
    """Whether the composed layers equal the picture of the state, for a sample of states."""
    every, files = combinations(fields), [one for layer in layers for one in layer]
    for number in np.linspace(0, len(every) - 1, CHECKED).astype(int):
        picture = files[shown[number, 0]].copy()
        for box, file in zip(parts[1:], shown[number, 1:], strict=True):
            box.cut(picture)[:] = box.cut(files[file])
        if (picture != _draw(env, _state(env, every[number]))).any():
            return False
    return True


def _shares(box: Box, whole: Box) -> tuple[float, float, float, float]:
    width, height = whole.right, whole.bottom
    size = (box.right - box.left) / width, (box.bottom - box.top) / height
    return (box.left / width, box.top / height, *size)


def _state(env: Environment, description: Mapping[str, Any]) -> int:
    return int(env.state(description))


def _draw(env: Environment, state: int) -> Array:
    picture = env.picture(np.array(state))
    assert picture is not None
    return picture


def _file(picture: Array) -> bytes:
    """A WebP file optimised for few bytes."""
    file = io.BytesIO()
    image = Image.fromarray(np.asarray(picture, dtype=np.uint8))
    image.thumbnail((WIDTH, WIDTH))
    image.save(file, "WEBP", quality=QUALITY)
    return file.getvalue()
