"""The plan of one pair: which events are reported, in time order: milestones, then risks.

A milestone is an event with the time of its first occurrence, given that it happens: the range from the 10 %
to the 90 % quantile (`EARLY`, `LATE`). Milestones are ordered by their medians. "Then" is used only if the
ranges do not overlap. Probabilities are for the event within the horizon, and are left out above 99 %. Counts
are given for events that repeat, conditional on the event happening at all.
"""

from typing import NamedTuple

from tpd.answers.sentences.endless import endless
from tpd.answers.sentences.formatting import CERTAIN, IMPOSSIBLE, is_wide, likely, listed, percent, worth
from tpd.answers.sentences.summary import PairSummary
from tpd.answers.sentences.terms import Term
from tpd.core.bands import UNTOLD

MOST_SAID = 4
WORTH_SAYING = 0.05
"""Minimum stake of a reported event, as a fraction of the largest; also its minimum probability."""
NOT_ASKED = 0.08
"""The same fraction for events whose first occurrence is not predicted."""
UNLIKELY = 0.01
"""An event with a smaller probability is reported only if it is a risk."""
LOOMING = 0.5
"""A risk with at least this probability is a milestone."""
REPEATED = 1.5
"""A count is reported from this expected count on, given that the event happens."""
LIKELY_STEP = 0.5
"""A single step is named if it has this probability, given that the event happens."""


class Clause(NamedTuple):
    """The text about one event."""

    name: str
    text: str
    begin: int
    """The first step of the event's reported time range."""
    end: int
    """The last step of the event's reported time range."""


class Plan(NamedTuple):
    """The clauses about one pair."""

    milestones: list[Clause]
    """In time order."""
    further: list[Clause]
    """Events that happen in most steps or, if there is nothing else, parts of the reward."""
    risks: list[Clause]
    absent: list[str]
    """Risks that are not expected at all."""
    too_wide: list[Clause]
    """Events whose bands are too wide for a statement: the forecast and its band."""


def planned(pair: PairSummary) -> Plan:
    """The plan of a pair: the most consequential events, and rare ones with a large penalty."""
    if pair.endless:
        return Plan([], [Clause("", endless(pair), 0, pair.horizon - 1)], [], [], [])
    told = [term for term in pair.terms if tells(pair, term)]
    too_wide = [] if pair.chance_band is None else [term for term in told if _too_wide(pair, term)]
    events = [term for term in told if term.is_event and term not in too_wide]
    risks = [term for term in events if pair.risk[term.number] and pair.spoken[term.number] >= 0]
    looming = [term for term in risks if pair.chance[term.number] >= LOOMING]
    rest = [term for term in events if term not in risks]
    largest = max((_stake(pair, term) for term in events), default=0.0)
    chosen = looming + _worth_saying(pair, rest, largest)[: MOST_SAID - len(looming)]
    order = [pair.middle if _timed(pair, term) else pair.peak_step for term in chosen]
    clauses = [(by[t.number], t.number, _milestone(pair, t)) for by, t in zip(order, chosen, strict=True)]
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
        [_vague(pair, term) for term in too_wide if _matters(pair, term)],
    )


def tells(pair: PairSummary, term: Term) -> bool:
    """Whether a number of the outcome may be reported."""
    t = term.number
    return pair.count_told[t] or (term.is_event and (pair.peak_told[t] or pair.spoken[t] >= 0))


def in_order(clauses: list[Clause]) -> str:
    """The clauses joined, with `then` only if their time ranges do not overlap."""
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
    return said if at_once else f"in uncertain order, {said}"


def _timed(pair: PairSummary, term: Term) -> bool:
    """Whether probability and time of the event are known."""
    return pair.spoken[term.number] >= 0


def _too_wide(pair: PairSummary, term: Term) -> bool:
    """Whether the band of an event is too wide to report its probability."""
    if pair.chance_band is None or not term.is_event or not _timed(pair, term):
        return False
    low, high = pair.chance_band[term.number]
    return high - low > UNTOLD


def _vague(pair: PairSummary, term: Term) -> Clause:
    """The forecast of an event whose band is too wide."""
    said = f"{term.name} {chance_of(pair, term.number)}"
    return Clause(term.name, said, pair.begin[term.number], pair.end[term.number])


def _matters(pair: PairSummary, term: Term) -> bool:
    return pair.count[term.number] > IMPOSSIBLE and (term.weight != 0 or not term.fills)


def _worth_saying(pair: PairSummary, events: list[Term], largest: float) -> list[Term]:
    """The events to report: first those with a stake that is not small compared with the largest one.

    Without events that fill most of the steps, and without those that are already the case.
    """
    special = [t for t in events if _passing(pair, t)]
    staked = [t for t in special if t.weight and _stake(pair, t) >= _least(pair, t) * largest]
    staked = [t for t in staked if not _timed(pair, t) or _chance(pair, t) >= UNLIKELY]
    free = [t for t in special if not t.weight and _chance(pair, t) >= WORTH_SAYING and _begins(pair, t)]
    staked.sort(key=lambda t: -_stake(pair, t))
    free.sort(key=lambda t: (not pair.ending[t.number], t.first is None, -_chance(pair, t)))
    return staked + free


def _stake(pair: PairSummary, term: Term) -> float:
    return abs((term.weight or 0) * pair.count[term.number])


def _passing(pair: PairSummary, term: Term) -> bool:
    """Whether the event is short: it does not fill most of the steps, and does not come and go.

    An event whose first occurrence is predicted and lies in the future counts as well.
    """
    t, half = term.number, pair.steps / 2
    if pair.count[t] <= IMPOSSIBLE:
        return False
    if pair.ending[t] or (term.first is not None and pair.begin[t] > 0):
        return True
    spread = pair.count[t] >= REPEATED and pair.until[t] - pair.since[t] > half
    return pair.count[t] <= max(1.0, half) and not spread


def _least(pair: PairSummary, term: Term) -> float:
    """The minimum stake of a reported event, as a fraction of the largest."""
    return WORTH_SAYING if term.first is not None or pair.ending[term.number] else NOT_ASKED


def _begins(pair: PairSummary, term: Term) -> bool:
    """Whether an event without reward starts later than now, so that it is worth reporting."""
    t = term.number
    if not _timed(pair, term):
        return _peaks(pair, term) and pair.peak_step[t] > 0
    return pair.end[t] > 0 or pair.ending[t]


def _chance(pair: PairSummary, term: Term) -> float:
    """The probability of the event or, if unknown, its largest probability at one step."""
    return pair.chance[term.number] if _timed(pair, term) else pair.peak[term.number]


def _peaks(pair: PairSummary, term: Term) -> bool:
    """Whether at least half of an event's expected count is at one step, and not at the last one."""
    t = term.number
    last = pair.peak_step[t] == pair.horizon - 1 and pair.horizon > 1
    return pair.peak_told[t] and 2 * pair.peak[t] >= pair.count[t] and not last


def _milestone(pair: PairSummary, term: Term) -> Clause:
    """The clause with time, probability and, if it repeats, count of an event."""
    t = term.number
    if not _timed(pair, term):
        return _untimed(pair, term)
    count = pair.count[t] / max(pair.chance[t], IMPOSSIBLE)
    time, within = when(pair, t)
    often = ""
    stays = pair.count[t] > pair.steps / 2
    if count >= REPEATED and not (stays or pair.ending[t]) and pair.count_told[t]:
        begin, end = pair.middle[t], pair.until[t]
        often = f"{_times(count, pair.exact[t])} "
        if pair.exact[t] and round(count) == end - begin + 1:
            often, time, within = "", f"at steps {begin} {'and' if end == begin + 1 else 'to'} {end}", ""
        elif end > begin:
            until = f"until step {end}" if end < pair.horizon - 1 else "on"
            time, within = f"from step {begin} {until}", ""
    brackets = ", ".join(filter(None, [within, chance_of(pair, t)]))
    said = f"{term.name} {often}{time}{f' ({brackets})' if brackets else ''}"
    return Clause(term.name, said, pair.begin[t], pair.end[t])


def _times(count: float, exact: bool) -> str:
    times = "twice" if count < 2.5 else f"{count:.0f} times"
    return times if exact else f"about {times}"


def _untimed(pair: PairSummary, term: Term) -> Clause:
    """The clause of an event with known probabilities of single steps, but not of the first occurrence."""
    t, step, count = term.number, pair.peak_step[term.number], pair.count[term.number]
    if _peaks(pair, term):
        said = f"{term.name} most likely at step {step} ({percent(pair.peak[t])} then)"
        return Clause(term.name, said, step, step)
    begin, end = pair.since[t], pair.until[t]
    steps = f"at step {begin}" if begin == end else f"at steps {begin} to {end}"
    said = f"{term.name} {_times(count, pair.exact[t]) if count >= REPEATED else 'mostly'} {steps}"
    if count < CERTAIN:
        said += f" (at most {percent(count)})"
    return Clause(term.name, said, begin, end)


def when(pair: PairSummary, t: int) -> tuple[str, str]:
    """The time of an event as text, given that it happens, and its range if that is reported separately."""
    begin, end = pair.begin[t], pair.end[t]
    if begin == end:
        return f"at step {begin}", ""
    if end == begin + 1:
        return f"at step {begin} or {end}", ""
    if pair.mode_share[t] >= LIKELY_STEP:
        return f"around step {pair.mode[t]}", f"{begin} to {end}"
    return f"at steps {begin} to {end}", ""


def chance_of(pair: PairSummary, t: int) -> str:
    """The probability of an event as text; empty if it is certain."""
    band = None if pair.chance_band is None else pair.chance_band[t]
    foreseen = pair.foresees(pair.spoken[t])
    if pair.chance[t] >= CERTAIN and not is_wide(band) and foreseen:
        return ""
    return f"{likely(pair.chance[t], band, foreseen, '[]')}{_by_when(pair, t)}"


def _by_when(pair: PairSummary, t: int) -> str:
    """The step that a probability refers to, if it is not learned up to the horizon."""
    return "" if pair.chance_told[t] or pair.spoken[t] == pair.horizon - 1 else f" by step {pair.spoken[t]}"


def _risk(pair: PairSummary, term: Term) -> Clause:
    t = term.number
    band = None if pair.chance_band is None else pair.chance_band[t]
    chance = likely(pair.chance[t], band, pair.foresees(pair.spoken[t]))
    time, within = when(pair, t)
    said = f"{term.name} {chance}{_by_when(pair, t)}, {time}{f' ({within})' if within else ''}"
    return Clause(term.name, said, pair.begin[t], pair.end[t])


def _all_along(pair: PairSummary, events: list[Term]) -> list[Clause]:
    """Clauses about events that happen in many steps, used if there are few milestones."""
    steps = max(1, round(pair.steps))
    often = [t for t in events if pair.count_told[t.number] and pair.count[t.number] >= REPEATED]
    often.sort(key=lambda t: -pair.count[t.number])
    said = list[Clause]()
    for term in often[:2]:
        count = min(round(pair.count[term.number]), steps)
        about = "" if pair.exact[term.number] else "about "
        nearly = "nearly " if pair.count[term.number] < CERTAIN * pair.steps else ""
        share = f"at {nearly}every step" if count == steps else f"in {about}{count} of {steps} steps"
        share += "" if pair.end_told else ", if the episode goes on"
        said.append(Clause(term.name, f"{term.name} {share}", 0, pair.horizon - 1))
    return said


def _largest_parts(pair: PairSummary, told: list[Term]) -> list[Term]:
    """The real-valued outcomes, largest contribution to the return first."""
    parts = [t for t in told if not t.is_event and abs(pair.count[t.number]) > IMPOSSIBLE]
    return sorted(parts, key=lambda t: (t.weight is None, -abs(_added(pair, t))))[:MOST_SAID]


def _added(pair: PairSummary, term: Term) -> float:
    return pair.count[term.number] if term.weight is None else pair.discounted[term.number] * term.weight


def _component(pair: PairSummary, term: Term) -> Clause:
    adds = f"adds {worth(_added(pair, term))} to the return"
    if term.weight is None:
        adds = f"adds up to {worth(_added(pair, term))}"
    return Clause(term.name, f"{term.name} {adds}", 0, pair.horizon - 1)
