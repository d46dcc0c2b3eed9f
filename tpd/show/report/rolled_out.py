"""Steps of a report that were rolled out: their pairs are stored after the learned ones."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tpd.answers.batch import Answers, Choice
from tpd.answers.what_if import sign_certain
from tpd.core.explanation import Explanation
from tpd.core.formats import percent
from tpd.core.outcomes import FIRST
from tpd.core.pairs import NO_PAIR
from tpd.core.types import Array, IntArray
from tpd.show.report.rows import Rows
from tpd.sources.episodes import Recording


@dataclass(frozen=True)
class RolledOut:
    """A recorded step, and the explanations of some of its actions by rollouts."""

    episode: int
    step: int
    columns: IntArray
    """[pair]: the column of the action in the report"""
    explanation: Explanation
    """[pair]: the first one is the action taken"""
    relies_on: str = ""
    """The drivers of the learned forecast after the action taken, as a sentence."""


def rolled_out_pairs(
    found: Sequence[RolledOut],
    recording: Recording | None,
    numbers: list[int],
    rows: Rows,
    learned: Explanation,
    options: IntArray,
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The texts and arrays of a page about the pairs, whose indices continue those of the learned ones.

    recording: only of the episodes with these numbers.
    """
    places = np.full(options.shape, NO_PAIR, dtype=np.int32)
    columns, outcomes = options.shape[1], learned.expected.shape[2]
    certain = np.zeros((len(found), columns, columns, outcomes), dtype=np.uint8)
    sentences, obtained, points = dict[str, list[str]](), dict[str, str](), list[dict[str, Any]]()
    number = len(learned)
    for index, one in enumerate(found):
        assert recording is not None
        shown = numbers.index(one.episode)
        entry = int(rows.steps[int(recording.episodes.begins[shown]) + one.step])
        state, taken = (int(value) for value in rows.entries[entry])
        places[state, one.columns] = number + np.arange(len(one.columns))
        number += len(one.columns)
        place = f"episode {one.episode}, step {one.step}"
        answers = _answers(one, rows, state, taken, place)
        paragraphs = [f"{sentence} {one.relies_on}".strip() for sentence in answers.sentences]
        said = dict(zip(one.columns.tolist(), paragraphs, strict=True))
        sentences[str(entry)] = [said.get(column, "") for column in range(columns)]
        certain[index] = _sign_certain(one, certain[index])
        obtained[str(state)] = one.explanation.obtained
        text = f"{place.capitalize()}: {rows.name(state, taken)}, "
        beside = learned[options[state, taken] : options[state, taken] + 1]
        text += _headline(one.explanation[one.columns == taken], beside)
        points.append({"episode": shown, "step": one.step, "state": state, "text": text})
    metadata = {"rolled_out": points, "rolled_out_sentences": sentences, "obtained": obtained}
    return metadata, {"rolled_out_options": places, "rolled_out_sign_certain": certain} if found else {}


def _answers(one: RolledOut, rows: Rows, state: int, taken: int, place: str) -> Answers:
    """[pair]: answers for the action taken against each foil, or alone for itself."""
    name = rows.name(state, taken)
    others = [None if column == taken else rows.name(state, column) for column in one.columns.tolist()]
    return Answers(
        facts=one.explanation,
        foils=one.explanation,
        fact=np.full(len(others), np.flatnonzero(one.columns == taken)[0]),
        foil=np.where(one.columns == taken, NO_PAIR, np.arange(len(others))),
        choices=[Choice(place, name, other, name) for other in others],
    )


def _sign_certain(one: RolledOut, certain: Array) -> Array:
    """[column, column, outcome]: whether the sign of the outcome's difference is certain."""
    for fact, foil in np.ndindex(len(one.columns), len(one.columns)):
        if fact != foil:
            contrast = one.explanation[fact : fact + 1] - one.explanation[foil : foil + 1]
            certain[one.columns[fact], one.columns[foil]] = sign_certain(contrast)[0]
    return certain


def _headline(rolled_out: Explanation, learned: Explanation) -> str:
    """The most likely, or most wrongly learned, first occurrence: by rollouts, and learned."""
    names, horizon = rolled_out.legend.names, rolled_out.horizon
    true, guess = (np.clip(side.expected[0].sum(axis=0), 0, 1) for side in (rolled_out, learned))
    told = learned.told.by[0, -1]
    firsts = [k for k, name in enumerate(names) if name.startswith(FIRST)]
    if not firsts:
        return rolled_out.obtained
    at_once = rolled_out.expected[0, 0]  # the current step is no forecast
    weight = [abs(true[k] - guess[k]) * told[k] + true[k] - at_once[k] for k in firsts]
    k = firsts[int(np.argmax(weight))]
    said = f"{names[k].removeprefix(FIRST)} within {horizon} steps {percent(true[k])}"
    if learned.endless:
        return said
    return f"{said} ({f'learned: {percent(guess[k])}' if told[k] else 'not learned'})"
