"""What will happen after one pair, in the order of time: milestones, then risks.

A milestone is an event with the time at which it first happens, given that it does: from the step by which a
tenth of that has happened to the step by which nine tenths have (`EARLY`, `LATE`). Milestones are ordered by
their medians. An order is claimed only where these ranges do not overlap. A probability says whether an event
happens within the steps explained, and is left out above 99 %; a count is given of what repeats, and is that
of the futures in which it happens at all.
"""

from typing import NamedTuple

from tpd.answers.sentences.formatting import CERTAIN, IMPOSSIBLE, is_wide, likely, listed, percent, worth
from tpd.answers.sentences.summary import PairSummary
from tpd.answers.sentences.terms import Term
from tpd.core.bands import UNTOLD

MOST_SAID = 4
WORTH_SAYING = 0.05
"""As a share of the largest stake, and as a probability."""
NOT_ASKED = 0.08
"""The same share of what nobody asked when it first happens."""
LOOMING = 0.5
"""A risk so likely is part of the plan."""
REPEATED = 1.5
"""What is expected so often, where it happens at all, has a count."""
LIKELY_STEP = 0.5
"""A step so likely, given that the event happens, is named."""


class Clause(NamedTuple):
    """What is said of one event."""

    name: str
    text: str
    begin: int
    """The step at which it may begin, as sentences say it."""
    end: int
    """The last step at which it is said to begin."""


class Plan(NamedTuple):
    """What is said of one pair."""

    milestones: list[Clause]
    """In the order of time."""
    further: list[Clause]
    """What happens all along or, where nothing else can be said, parts of the reward."""
    risks: list[Clause]
    absent: list[str]
    """Risks that are not expected at all."""
    too_wide: list[str]
    """Events whose bands are so wide that nothing can be said."""


def planned(pair: PairSummary) -> Plan:
    """The few most consequential events; rare ones where they carry a large penalty."""
    told = [term for term in pair.terms if tells(pair, term)]
    too_wide = [] if pair.chance_band is None else [term for term in told if _too_wide(pair, term)]
    events = [term for term in told if term.is_event and term not in too_wide]
    risks = [term for term in events if pair.risk[term.number] and pair.spoken[term.number] >= 0]
    looming = [term for term in risks if pair.chance[term.number] >= LOOMING]
    rest = [term for term in events if term not in risks]
    largest = max((_stake(pair, term) for term in events), default=0.0)
    chosen = looming + _worth_saying(pair, rest, largest)[: MOST_SAID - len(looming)]
    clauses = [(_median(pair, term), term.number, _milestone(pair, term)) for term in chosen]
    milestones = [clause for *_, clause in sorted(clauses)]
    others = [term for term in rest if term not in chosen and not (term.fills and term.weight and chosen)]
    further = _all_along(pair, others) if len(milestones) < 2 else []
    if not milestones and not further:
        further = [_component(pair, term) for term in _largest_parts(pair, told)]
    lesser = [term for term in risks if term not in looming]
    return Plan(
        milestones,
        further,
        [_risk(pair, term) for term in lesser if pair.chance[term.number] > IMPOSSIBLE],
        [t.name for t in lesser if pair.chance[t.number] <= IMPOSSIBLE and t.first is not None],
        [term.name for term in too_wide if _matters(pair, term)],
    )


def tells(pair: PairSummary, term: Term) -> bool:
    """Whether a number of the outcome may be given."""
    t = term.number
    return pair.count_told[t] or (term.is_event and (pair.peak_told[t] or pair.spoken[t] >= 0))


def in_order(clauses: list[Clause]) -> str:
    """With `then` only where one surely comes after the other."""
    groups = list[list[Clause]]()
    for clause in clauses:
        if groups and clause.begin <= max(one.end for one in groups[-1]):
            groups[-1].append(clause)
        else:
            groups.append([clause])
    return ", then ".join(map(_together, groups))


def _together(group: list[Clause]) -> str:
    if len(group) == 1:
        return group[0].text
    said = listed([clause.text for clause in group])
    at_once = len({(clause.begin, clause.end) for clause in group}) == 1 and group[0].begin == group[0].end
    return said if at_once else f"{said}, in no certain order"


def _timed(pair: PairSummary, term: Term) -> bool:
    """Whether it is known how likely the event happens, and when."""
    return pair.spoken[term.number] >= 0


def _median(pair: PairSummary, term: Term) -> int:
    return pair.middle[term.number] if _timed(pair, term) else pair.peak_step[term.number]


def _too_wide(pair: PairSummary, term: Term) -> bool:
    """Whether the band of an event is so wide that its probability says nothing."""
    if pair.chance_band is None or not term.is_event or not _timed(pair, term):
        return False
    low, high = pair.chance_band[term.number]
    return high - low > UNTOLD


def _matters(pair: PairSummary, term: Term) -> bool:
    return pair.count[term.number] > IMPOSSIBLE and (term.weight != 0 or not term.fills)


def _worth_saying(pair: PairSummary, events: list[Term], largest: float) -> list[Term]:
    """The consequential first; not what fills most of the steps, nor what is the case already.

    Consequential is what has a stake that is not small beside the largest one.
    """
    special = [t for t in events if _passing(pair, t)]
    staked = [t for t in special if t.weight and _stake(pair, t) >= _least(pair, t) * largest]
    free = [t for t in special if not t.weight and _chance(pair, t) >= WORTH_SAYING and _begins(pair, t)]
    staked.sort(key=lambda t: -_stake(pair, t))
    free.sort(key=lambda t: (not pair.ending[t.number], t.first is None, -_chance(pair, t)))
    return staked + free


def _stake(pair: PairSummary, term: Term) -> float:
    return abs((term.weight or 0) * pair.count[term.number])


def _passing(pair: PairSummary, term: Term) -> bool:
    """Whether the event is no state in which most of the steps are spent, or that comes and goes.

    Where it was asked when it first happens, it may be, if that is later than now.
    """
    t, half = term.number, pair.steps / 2
    if pair.count[t] <= IMPOSSIBLE:
        return False
    if pair.ending[t] or (term.first is not None and pair.begin[t] > 0):
        return True
    spread = pair.count[t] >= REPEATED and pair.until[t] - pair.since[t] > half
    return pair.count[t] <= max(1.0, half) and not spread


def _least(pair: PairSummary, term: Term) -> float:
    """How large a stake has to be to be said, as a share of the largest."""
    return WORTH_SAYING if term.first is not None or pair.ending[term.number] else NOT_ASKED


def _begins(pair: PairSummary, term: Term) -> bool:
    """Whether an event without a reward begins later than now, so that it is news."""
    t = term.number
    if not _timed(pair, term):
        return _peaks(pair, term) and pair.peak_step[t] > 0
    return pair.end[t] > 0 or pair.ending[t]


def _chance(pair: PairSummary, term: Term) -> float:
    """How likely the event happens, or the most that is expected at one step."""
    return pair.chance[term.number] if _timed(pair, term) else pair.peak[term.number]


def _peaks(pair: PairSummary, term: Term) -> bool:
    """Whether an event happens at one step more than at all others, and before the last one explained."""
    t = term.number
    last = pair.peak_step[t] == pair.horizon - 1 and pair.horizon > 1
    return pair.peak_told[t] and 2 * pair.peak[t] >= pair.count[t] and not last


def _milestone(pair: PairSummary, term: Term) -> Clause:
    """When an event happens, how likely, and how often where it repeats."""
    t = term.number
    if not _timed(pair, term):
        return _untimed(pair, term)
    count = pair.count[t] / max(pair.chance[t], IMPOSSIBLE)
    time, within = when(pair, t)
    often = ""
    stays = pair.count[t] > pair.steps / 2
    if count >= REPEATED and not (stays or pair.ending[t]) and pair.count_told[t]:
        often = f"{_about(count)} "
        if pair.until[t] > pair.middle[t]:
            until = f"until step {pair.until[t]}" if pair.until[t] < pair.horizon - 1 else "on"
            time, within = f"from step {pair.middle[t]} {until}", ""
    brackets = ", ".join(filter(None, [within, chance_of(pair, t)]))
    said = f"{term.name} {often}{time}{f' ({brackets})' if brackets else ''}"
    return Clause(term.name, said, pair.begin[t], pair.end[t])


def _about(count: float) -> str:
    return "about twice" if count < 2.5 else f"about {count:.0f} times"


def _untimed(pair: PairSummary, term: Term) -> Clause:
    """An event of which only the probabilities at each step are known, which do not add up."""
    t, step, count = term.number, pair.peak_step[term.number], pair.count[term.number]
    if _peaks(pair, term):
        said = f"{term.name} most likely at step {step} ({percent(pair.peak[t])} then)"
        return Clause(term.name, said, step, step)
    begin, end = pair.since[t], pair.until[t]
    steps = f"at step {begin}" if begin == end else f"at steps {begin} to {end}"
    said = f"{term.name} {_about(count) if count >= REPEATED else 'mostly'} {steps}"
    if count < CERTAIN:
        said += f" (at most {percent(count)})"
    return Clause(term.name, said, begin, end)


def when(pair: PairSummary, t: int) -> tuple[str, str]:
    """The time of an event in words, given that it happens, and its range where that is said apart."""
    begin, end = pair.begin[t], pair.end[t]
    if begin == end:
        return f"at step {begin}", ""
    if end == begin + 1:
        return f"at step {begin} or {end}", ""
    if pair.mode_share[t] >= LIKELY_STEP:
        return f"around step {pair.mode[t]}", f"{begin} to {end}"
    return f"at steps {begin} to {end}", ""


def chance_of(pair: PairSummary, t: int) -> str:
    """How likely an event is, where that has to be said."""
    band = None if pair.chance_band is None else pair.chance_band[t]
    foreseen = pair.foresees(pair.spoken[t])
    if pair.chance[t] >= CERTAIN and not is_wide(band) and foreseen:
        return ""
    return f"{likely(pair.chance[t], band, foreseen, '[]')}{_by_when(pair, t)}"


def _by_when(pair: PairSummary, t: int) -> str:
    """Up to which step the probability is meant, where it is not learned to the end."""
    return "" if pair.chance_told[t] or pair.spoken[t] == pair.horizon - 1 else f" by step {pair.spoken[t]}"


def _risk(pair: PairSummary, term: Term) -> Clause:
    t = term.number
    band = None if pair.chance_band is None else pair.chance_band[t]
    chance = likely(pair.chance[t], band, pair.foresees(pair.spoken[t]))
    time, within = when(pair, t)
    said = f"{term.name} {chance}{_by_when(pair, t)}, {time}{f' ({within})' if within else ''}"
    return Clause(term.name, said, pair.begin[t], pair.end[t])


def _all_along(pair: PairSummary, events: list[Term]) -> list[Clause]:
    """What most steps are spent with, where little else is to be said."""
    steps = max(1, round(pair.steps))
    often = [t for t in events if pair.count_told[t.number] and pair.count[t.number] >= REPEATED]
    often.sort(key=lambda t: -pair.count[t.number])
    said = list[Clause]()
    for term in often[:2]:
        count = min(round(pair.count[term.number]), steps)
        share = "at every step" if count == steps else f"in about {count} of {steps} steps"
        said.append(Clause(term.name, f"{term.name} {share}", 0, pair.horizon - 1))
    return said


def _largest_parts(pair: PairSummary, told: list[Term]) -> list[Term]:
    """The outcomes that are no events, those that add most to the return first."""
    parts = [t for t in told if not t.is_event and abs(pair.count[t.number]) > IMPOSSIBLE]
    return sorted(parts, key=lambda t: (t.weight is None, -abs(_added(pair, t))))[:MOST_SAID]


def _added(pair: PairSummary, term: Term) -> float:
    return pair.count[term.number] if term.weight is None else pair.discounted[term.number] * term.weight


def _component(pair: PairSummary, term: Term) -> Clause:
    adds = f"adds {worth(_added(pair, term))} to the return"
    if term.weight is None:
        adds = f"adds up to {worth(_added(pair, term))}"
    return Clause(term.name, f"{term.name} {adds}", 0, pair.horizon - 1)
