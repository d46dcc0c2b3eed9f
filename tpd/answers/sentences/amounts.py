"""How two pairs differ in one event: probability, count or time."""

from tpd.answers.sentences.formatting import CERTAIN, IMPOSSIBLE, percent
from tpd.answers.sentences.plan import REPEATED, WORTH_SAYING
from tpd.answers.sentences.summary import PairSummary
from tpd.answers.sentences.terms import Term

SAME_CHANCE = 0.005
"""Probabilities that differ by less count as equal."""


def amounts(term: Term, added: float, better: PairSummary, lesser: PairSummary) -> str:
    """The difference in probability, count or time of an event, as text; empty if there is none."""
    t = term.number
    if not term.is_event:
        return ""
    if max(_repeats(better, term), _repeats(lesser, term)) < REPEATED and _timed(better, lesser, t):
        chances = better.chance[t], lesser.chance[t]
        sooner = _sooner(better, lesser, t)
        if abs(chances[0] - chances[1]) < SAME_CHANCE:
            return sooner
        said = f"{percent(chances[0])} against {percent(chances[1])}"
        expected = (term.weight or 0) * (chances[0] - chances[1]) * added >= 0
        return said if expected or not sooner else f"{said}, but {sooner}"
    one, other = _times(better, term), _times(lesser, term)
    if one == other:
        return ""
    if one.endswith(" times") and other.endswith(" times"):
        return f"{one.removesuffix(' times')} against {other.removeprefix('about ')}"
    return f"{one} against {other}"


def _timed(one: PairSummary, other: PairSummary, t: int) -> bool:
    """Whether probability and time of an event are known for both."""
    return min(one.spoken[t], other.spoken[t]) >= 0


def _sooner(better: PairSummary, lesser: PairSummary, t: int) -> str:
    """The difference in the time of an event; empty if the event is rare."""
    if min(better.chance[t], lesser.chance[t]) <= WORTH_SAYING or better.middle[t] == lesser.middle[t]:
        return ""
    said = "sooner" if better.middle[t] < lesser.middle[t] else "later"
    return f"{said}: around step {better.middle[t]} against {lesser.middle[t]}"


def _repeats(pair: PairSummary, term: Term) -> float:
    """The expected count of the event, given that it happens."""
    t = term.number
    if pair.ending[t] or pair.spoken[t] < 0:
        return pair.count[t]
    return pair.count[t] / max(pair.chance[t], IMPOSSIBLE)


def _times(pair: PairSummary, term: Term) -> str:
    """The expected count of an event as text; for rare events, the probability."""
    count = pair.count[term.number]
    if count <= IMPOSSIBLE:
        return "never"
    if count < CERTAIN and pair.spoken[term.number] >= 0:
        return percent(pair.chance[term.number])
    if count < CERTAIN:
        return f"at most {percent(count)}"
    return "about once" if count < REPEATED else f"about {count:.0f} times"
