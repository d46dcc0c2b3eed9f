"""Falsify one fact in a text: a step, a percentage or a reward of one outcome, or the order of two.

Existing sentences are parsed, not generated again. A number belongs to the last outcome named before it or,
in the form "47 % risk of it", to the one named right after it.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from reading.questions import NOW, ORDER, PERCENT, STEP, THRESHOLD, About

PATTERNS = {
    STEP: r"\bsteps? (\d+)(?: (?:to|or|and|against) (\d+))?(?: \((\d+) to (\d+)\))?",
    PERCENT: r"(\d+(?:\.\d+)?) %",
}
PRICE = r"(penalty|reward) of (-?[\d.]+(?:e[+-]?\d+)?)"
BAND = r" % ?[\[(](\d+) to (\d+) %"
CLOSE = {STEP: 1.0, PERCENT: 1.0}
"""How close a number in the text must be to the true one to be recognised as it."""


class Falsified(NamedTuple):
    """A text with a falsified fact."""

    text: str
    changes: list[tuple[str, str]]
    """The old and the new words of each change, in the order of the text."""


def falsify(text: str, about: About, actions: Sequence[str], outcomes: Sequence[str]) -> Falsified | None:
    """The text with the fact changed wherever it occurs; None if it does not occur, or cannot be changed.

    actions: the names of the fact and the foil.
    outcomes: all names of outcomes.
    """
    if np.isnan(about.false):
        return None
    if about.what in (THRESHOLD, NOW):
        return _other_reward(text, about)
    section = _section(text, actions, about.side)
    if section is None:
        return None
    if about.what == ORDER:
        return _other_order(text, about, section)
    replaced = dict[tuple[int, int], str]()
    hit, compared = False, _compared_from(text, actions)
    for begin, end in _places(text, about, outcomes):
        near = abs(float(text[begin:end]) - about.true) <= CLOSE[about.what]
        inside = section[0] <= begin < section[1]
        if not (inside and (near or about.what == STEP)) and not (begin >= compared and near):
            continue
        hit |= inside and near
        moved = about.false if about.what == PERCENT else _moved(text[begin:end], about)
        replaced[begin, end] = f"{max(0, round(moved))}"
        replaced |= {
            limit: f"{_moved(text[slice(*limit)], about):.0f}" for limit in _band(text, end, about.what)
        }
    return _replaced(text, replaced) if hit else None


def _replaced(text: str, new: Mapping[tuple[int, int], str]) -> Falsified:
    """The text with the words at these positions replaced."""
    pieces, changes, done = list[str](), list[tuple[str, str]](), 0
    for begin, end in sorted(new):
        if text[begin:end] != new[begin, end]:
            pieces += [text[done:begin], new[begin, end]]
            changes.append((text[begin:end], new[begin, end]))
            done = end
    return Falsified("".join([*pieces, text[done:]]), changes)


def _other_order(text: str, about: About, section: tuple[int, int]) -> Falsified | None:
    """Swap two outcomes in the part of the text about an action."""
    exchanged = {about.outcome: about.other, about.other: about.outcome}
    found = list(re.compile(rf"\b({'|'.join(exchanged)})\b").finditer(text, *section))
    if {each[1] for each in found} != set(exchanged):
        return None
    return _replaced(text, {each.span(1): exchanged[each[1]] for each in found})


def _band(text: str, end: int, what: str) -> list[tuple[int, int]]:
    """The positions of the two limits of the band after a percentage, if there is one."""
    found = re.compile(BAND).match(text, end) if what == PERCENT else None
    return [] if found is None else [found.span(1), found.span(2)]


def _moved(said: str, about: About) -> float:
    """A step or a band limit, shifted like the falsified number."""
    moved = max(0.0, float(said) + about.false - about.true)
    return min(100.0, moved) if about.what == PERCENT else moved


def _section(text: str, actions: Sequence[str], side: int) -> tuple[int, int] | None:
    """Begin and end of the part of the text about one action."""
    starts = [re.search(rf"\b{action}\b[^.:;]{{0,30}}:", text, re.IGNORECASE) for action in actions]
    if starts[side] is None:
        return None
    begin = starts[side].start()  # type: ignore[union-attr]  # checked above
    later = [found.start() for found in starts if found is not None and found.start() > begin]
    return begin, min([*later, _compared_from(text, actions)])


def _compared_from(text: str, actions: Sequence[str]) -> int:
    """The begin of the first sentence that names both actions, after the parts about each."""
    starts = [re.search(rf"\b{action}\b[^.:;]{{0,30}}:", text, re.IGNORECASE) for action in actions]
    last = max((found.end() for found in starts if found is not None), default=0)
    for found in re.finditer(r"(?<=[.\n] )[A-Z][^.]*(?:\.\d[^.]*)*|(?<=\n)[A-Z][^.]*(?:\.\d[^.]*)*", text):
        if found.start() > last and all(re.search(rf"\b{a}\b", found[0], re.IGNORECASE) for a in actions):
            return found.start()
    return len(text)


def _places(text: str, about: About, outcomes: Sequence[str]) -> list[tuple[int, int]]:
    """The positions of the numbers of this kind that belong to the outcome."""
    names = "|".join(re.escape(name) for name in sorted(outcomes, key=len, reverse=True))
    found = set[tuple[int, int]]()
    mentions = list(re.finditer(rf"\b({names})\b", text, re.IGNORECASE))
    for number, mention in enumerate(mentions):
        if mention[1].lower() != about.outcome.lower():
            continue
        until = mentions[number + 1].start() if number + 1 < len(mentions) else len(text)
        stop = re.compile(r"\.\s|\n").search(text, mention.end(), until)
        clause = text[mention.end() : stop.start() if stop else until]
        before = text[max(0, mention.start() - 40) : mention.start()]
        for hit in re.finditer(PATTERNS[about.what], clause):
            if about.what == PERCENT and re.match(r"\s*\S*\s*(risk|chance)\b", clause[hit.end() :]):
                continue  # belongs to the outcome named next
            for group in range(1, (hit.lastindex or 0) + 1):
                found.add((mention.end() + hit.start(group), mention.end() + hit.end(group)))
        ahead = re.search(rf"{PATTERNS[PERCENT]}[^.;,]{{0,30}}$", before)
        if about.what == PERCENT and ahead is not None:
            begin = max(0, mention.start() - 40)
            found.add((begin + ahead.start(1), begin + ahead.end(1)))
    return sorted(found)


def _other_reward(text: str, about: About) -> Falsified | None:
    """Falsify the reward at which the foil overtakes, or the current reward of the outcome."""
    for line in re.finditer(r"[^\n]*overtak[^\n]*", text):
        prices = list(re.finditer(PRICE, line[0]))
        now = [price for price in prices if "now" in line[0][max(0, price.start() - 8) : price.start()]]
        wanted = now if about.what == NOW else [price for price in prices if price not in now]
        if about.outcome not in line[0] or not wanted:
            continue
        price = wanted[0]
        word, amount = ("penalty" if about.false < 0 else "reward"), f"{abs(about.false):.4g}"
        begin, end = line.start() + price.start(), line.start() + price.end()
        new = f"{word} of {amount}"
        if new == price[0]:
            return None
        return Falsified(text[:begin] + new + text[end:], [(price[0], new)])
    return None
