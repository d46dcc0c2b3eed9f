"""Explanations in plain words: every number comes from the explanation, and what is unknown is said.

An expectation at one step is the probability of an event at that step. Words that add steps up ("by",
"within") are said only of first occurrences, which do add up.
"""

from collections.abc import Sequence

import numpy as np

from tpd.bands import UNTOLD
from tpd.explainer import ROUNDING
from tpd.explanation import ENOUGH_VISITS, Contrast, Explanation
from tpd.facts import Differences, Fact
from tpd.futures import IMPOSSIBLE, Future, Futures, Term, percent
from tpd.outcomes import FIRST
from tpd.phrases import WIDE, likely, listed, sentence
from tpd.what_if import overtaking, reward_of, settled

MOST_SAID, MOST_AGAINST = 4, 2
FEW_VISITS = 30
NEGLIGIBLE = 0.005
WORTH_SAYING = 0.05
"""As a share of the largest stake, and as a probability."""
LARGE = 0.25
"""As a share: of the difference for what speaks against it, of the largest stake for what has no peak."""


class Narrator:
    """Tells of the pairs of one explanation."""

    def __init__(self, explanation: Explanation) -> None:
        self._futures = Futures(explanation)

    def describe(self, row: int, name: str) -> str:
        """What is expected after one pair: its few most consequential outcomes, and how well it is known."""
        return _described(Future(self._futures, row, name))


def worth(value: float) -> str:
    """A return, with as many digits as a reader needs."""
    return f"{value:.2f}" if abs(value) >= 0.1 or value == 0 else f"{value:.2g}"


def describe(explanation: Explanation, row: int, name: str) -> str:
    """What is expected after one pair: its few most consequential outcomes, and how well it is known."""
    return Narrator(explanation[row : row + 1]).describe(0, name)


def _described(future: Future, also: str = "") -> str:
    if not future.known:
        return sentence(_never_tried(future))
    said = [f"{future.name}{also}: {_expectations(future)}"]
    if not future.foreseen:
        said.append(_into_unknown(future))
    if future.visits < FEW_VISITS:
        stand = "visit stands" if future.visits == 1 else "visits stand"
        much = "not enough data: " if future.visits < ENOUGH_VISITS else ""
        said.append(f"{much}only {future.visits:.0f} {stand} behind this")
    return " ".join(map(sentence, said))


def _never_tried(future: Future) -> str:
    return f"{future.name} was never tried here, so nothing is known of it"


def _into_unknown(future: Future) -> str:
    return (
        f"from step {future.unknown_from} on the future after {future.name} is partly unknown: with "
        f"{percent(future.unknown)} it has come to what was never tried by step {future.horizon - 1}"
    )


def _expectations(future: Future) -> str:
    peaks, others, risks, untold = list[Term](), list[str](), list[str](), list[str]()
    for term in _worth_saying(future):
        if not term.is_event:
            others.append(_component(future, term))
        elif _untold(future, term):
            untold.append(term.name)
        elif (term.weight or 0) < 0 and future.ending[term.column]:
            risks.append(_risk(future, term))
        elif _peaks(future, term):
            peaks.append(term)
        elif term.first is not None:
            others.append(f"{term.name} {_by_when(future, term.first)}: {_ever(future, term.first)}")
        else:
            others.append(f"{term.name} expected {_times(future.count[term.column])}")
    peaks.sort(key=lambda term: future.peak_step[term.column])
    in_order = [_peak(future, term, "at" if i else "most likely at") for i, term in enumerate(peaks)]
    said = [*([", ".join(in_order)] if peaks else []), *others, *risks]
    if untold:
        said.append(
            f"not enough data to tell how likely {listed(untold)} {'is' if len(untold) == 1 else 'are'}"
        )
    return "; ".join(said) or "none of the outcomes is expected"


def _worth_saying(future: Future) -> list[Term]:
    """The rare and consequential first; what fills most of the steps only if there is nothing else."""
    count = future.count
    every = [term for term in future.terms if abs(count[term.column]) > IMPOSSIBLE]
    special = [term for term in every if not term.fills or count[term.column] <= max(1, future.steps / 2)]
    stakes = {term: abs((term.weight or 0) * count[term.column]) for term in special}
    largest = max(stakes.values(), default=0.0)
    staked = [
        term
        for term, stake in stakes.items()
        if stake and stake >= (WORTH_SAYING if _stands_out(future, term) else LARGE) * largest
    ]
    free = [t for t in special if t.weight is None and t.is_event and future.peak[t.column] >= WORTH_SAYING]
    staked.sort(key=lambda term: -stakes[term])
    free.sort(key=lambda term: (term.first is None, -future.peak[term.column]))
    return (staked + free)[:MOST_SAID] or sorted(every, key=lambda term: -count[term.column])[:1]


def _untold(future: Future, term: Term) -> bool:
    """Whether the band of an event is so wide that its probability says nothing."""
    if future.count_band is None or (term.first is None and not future.ending[term.column]):
        return False
    low, high = future.count_band[term.column if term.first is None else term.first]
    return high - low > UNTOLD


def _stands_out(future: Future, term: Term) -> bool:
    """Whether there is more to say of an outcome than how often it is expected."""
    return not term.is_event or term.first is not None or future.ending[term.column] or _peaks(future, term)


def _peaks(future: Future, term: Term) -> bool:
    """Whether an event happens at one step more than at all others, and before the last one explained."""
    low, high = (0.0, 0.0) if future.peak_band is None else future.peak_band[term.column]
    if high - low > UNTOLD:
        return False
    last = future.peak_step[term.column] == future.horizon - 1
    return 2 * future.peak[term.column] >= future.count[term.column] and not (last and future.horizon > 1)


def _peak(future: Future, term: Term, at: str) -> str:
    """When the event is most likely and, where that is known and says more, how likely it is at all."""
    k, step, at_all = term.column, future.peak_step[term.column], term.first
    band = None if future.peak_band is None else future.peak_band[k]
    said = f"{term.name} {at} step {step} ({likely(future.peak[k], band, future.foresees(step), '[]')}"
    if at_all is None or percent(future.count[at_all]) == percent(future.peak[k]):
        return f"{said})"
    return f"{said}; {_ever(future, at_all, '[]')} {_by_when(future, at_all)})"


def _by_when(future: Future, first: int) -> str:
    """By when the probability of a first occurrence is as large as it gets."""
    step = future.settled[first]
    if step == 0:
        return "at step 0"
    return f"by step {step}" if step < future.horizon - 1 else f"within {future.horizon} steps"


def _risk(future: Future, term: Term) -> str:
    if term.first is None:
        return f"{_ever(future, term.column)} risk of {term.name}"
    return f"{_ever(future, term.first)} risk of {term.name} {_by_when(future, term.first)}"


def _ever(future: Future, column: int, brackets: str = "()") -> str:
    """How likely an event is at all, and how sure that is."""
    band = None if future.count_band is None else future.count_band[column]
    return likely(future.count[column], band, future.foresees(future.settled[column]), brackets)


def _component(future: Future, term: Term) -> str:
    if term.weight is None:
        return f"{term.name} adds up to {worth(future.count[term.column])}"
    return f"{term.name} adds {worth(future.discounted[term.column] * term.weight)} to the return"


def _times(count: float) -> str:
    if count <= IMPOSSIBLE:
        return "never"
    if count < NEGLIGIBLE:
        return "hardly ever"
    return f"{count:.1f} times" if count >= 1 else f"{count:.2f} times"


class ContrastNarrator:
    """Compares two explanations pair by pair, with all that sentences need worked out once for the batch.

    Returns that differ by less than `tie`, relative to the larger one, are about equal.
    """

    def __init__(self, contrast: Contrast, tie: float = 0.0) -> None:
        self._fact, self._foil = Futures(contrast.fact), Futures(contrast.foil)
        self._tie = tie
        self._differences = Differences(contrast)
        self._bands: list[list[float]] | None = None
        if contrast.drawn and self._differences.rewarded:
            band = contrast.return_band()
            self._bands = np.stack([band.low[:, -1], band.high[:, -1]], axis=1).tolist()

    def compare(self, row: int, fact_name: str, foil_name: str, chosen: str | None = None) -> str:
        """Which of the two is worth more, and why; said too where that is not the one that was chosen."""
        return self._compare(row, *self._futures(row, fact_name, foil_name), chosen)

    def paragraph(
        self,
        row: int,
        fact_name: str,
        foil_name: str,
        chosen: str | None = None,
        best: tuple[str, float] | None = None,
    ) -> str:
        """The whole answer: the fact, the foil instead, how they differ and why.

        `best` is a third action that the explained returns favour over the one chosen, and its return.
        """
        fact, foil = self._futures(row, fact_name, foil_name)
        said = [_described(fact), _described(foil, " instead")]
        if fact.known and foil.known:
            said.append(self._compare(row, fact, foil, chosen))
        if best is not None and chosen is not None:
            own = fact if chosen == fact_name else foil
            said.append(sentence(unsupported(*best, chosen, own.worth)))
        return " ".join(said)

    def _futures(self, row: int, fact_name: str, foil_name: str) -> tuple[Future, Future]:
        return Future(self._fact, row, fact_name), Future(self._foil, row, foil_name)

    def _compare(self, row: int, fact: Future, foil: Future, chosen: str | None) -> str:
        for future in (fact, foil):
            if not future.known:
                return sentence(f"{_never_tried(future)}, and the two cannot be compared")
            if not future.foreseen:
                return sentence(f"{future.name} leads to the unknown, so the two cannot be compared")
        if not self._differences.rewarded:
            return sentence(_differing(self._differences.main(row), fact, foil))
        if self._about_equal(fact.worth, foil.worth):
            said = f"{fact.name} and {foil.name} are worth about the same"
            said += f" ({worth(fact.worth)} and {worth(foil.worth)}{self._apart(row)})"
            return sentence(said)
        facts = self._differences.main(row)
        if fact.worth > foil.worth:
            said = _verdict(fact, foil, chosen) + _reasons(facts, fact, foil)
        else:
            said = _verdict(foil, fact, chosen) + _reasons([_reversed(one) for one in facts], foil, fact)
        doubts = [] if self._bands is None else _doubts(self._bands[row], fact, foil)
        return " ".join(map(sentence, [said, *doubts, *_beyond(fact, foil)]))

    def _apart(self, row: int) -> str:
        """How far apart they may be all the same."""
        if self._bands is None:
            return ""
        low, high = (worth(end if abs(end) > ROUNDING else 0.0) for end in self._bands[row])
        return "" if low == high else f", a difference of {low} to {high}"

    def _about_equal(self, one: float, other: float) -> bool:
        size = max(abs(one), abs(other))
        return abs(one - other) <= self._tie * size + ROUNDING or worth(one) == worth(other)


def compare(
    contrast: Contrast, row: int, fact_name: str, foil_name: str, chosen: str | None = None, tie: float = 0.0
) -> str:
    """Which of the two is worth more, and why; for many rows use `ContrastNarrator`."""
    return _only(contrast, row, tie).compare(0, fact_name, foil_name, chosen)


def paragraph(
    contrast: Contrast,
    row: int,
    fact_name: str,
    foil_name: str,
    chosen: str | None = None,
    tie: float = 0.0,
    best: tuple[str, float] | None = None,
) -> str:
    """The whole answer about one row; for many rows use `ContrastNarrator`."""
    return _only(contrast, row, tie).paragraph(0, fact_name, foil_name, chosen, best)


def _only(contrast: Contrast, row: int, tie: float) -> ContrastNarrator:
    one = slice(row, row + 1)
    return ContrastNarrator(contrast.fact[one] - contrast.foil[one], tie)


def _verdict(better: Future, lesser: Future, chosen: str | None) -> str:
    if chosen == lesser.name:
        return unsupported(better.name, better.worth, lesser.name, lesser.worth)
    return (
        f"{better.name} is worth {worth(better.worth - lesser.worth)} more than {lesser.name} "
        f"({worth(better.worth)} against {worth(lesser.worth)})"
    )


def unsupported(best: str, best_return: float, own: str, own_return: float) -> str:
    """What must be said where the explained returns favour another action than the agent's own."""
    they = favour(best, best_return, own, own_return)
    return f"the explained returns do not support this choice: they {they}"


def favour(best: str, best_return: float, own: str, own_return: float) -> str:
    """Which of two the explained returns favour."""
    return f"favour {best} ({worth(best_return)}) over {own} ({worth(own_return)})"


def _reversed(fact: Fact) -> Fact:
    assert fact.gain is not None
    return fact._replace(gain=-fact.gain, fact_count=fact.foil_count, foil_count=fact.fact_count)


def _reasons(facts: Sequence[Fact], better: Future, lesser: Future) -> str:
    """Why one is worth more, seen from the better one."""
    by_size = sorted(((fact.gain or 0.0, fact) for fact in facts), key=lambda pair: -abs(pair[0]))
    large = LARGE * (better.worth - lesser.worth)
    pro = [_reason(fact, better, lesser) for gain, fact in by_size if gain > 0]
    contra = [_reason(fact, better, lesser) for gain, fact in by_size if gain < -large]
    said = f", mainly because of {listed(pro[:MOST_SAID])}"
    return f"{said}; against it: {listed(contra[:MOST_AGAINST])}" if contra else said


def _differing(facts: Sequence[Fact], fact: Future, foil: Future) -> str:
    if not facts:
        return f"{fact.name} and {foil.name} do not differ in the outcomes explained"
    said = listed([_reason(one, fact, foil) for one in facts[:MOST_SAID]])
    return f"{fact.name} differs from {foil.name} most in {said}"


def _reason(fact: Fact, better: Future, lesser: Future) -> str:
    term = next(term for term in better.terms if term.name == fact.outcome.removeprefix(FIRST))
    gain = "" if fact.gain is None else f"{'+' if fact.gain > 0 else ''}{worth(fact.gain)}"
    amounts = _amounts(fact, term, better, lesser)
    steps = f"step {fact.begin}" if fact.begin == fact.end else f"steps {fact.begin} to {fact.end}"
    said = ": ".join(part for part in (gain, amounts) if part)
    return f"{term.name} ({', '.join(part for part in (said, f'mostly at {steps}') if part)})"


def _amounts(fact: Fact, term: Term, better: Future, lesser: Future) -> str:
    """How often or how likely the event is after both."""
    if not term.is_event:
        return ""
    one, other = fact.fact_count, fact.foil_count
    if abs(one - other) < NEGLIGIBLE:
        sooner = better.discounted[term.column] > lesser.discounted[term.column]
        return f"as often, but {'sooner' if sooner else 'later'}"
    sooner = better.discounted[term.column] > lesser.discounted[term.column]
    but = "" if sooner == (one > other) else f", but {'sooner' if sooner else 'later'}"
    if term.first is not None and max(one, other) <= 1 + ROUNDING:
        said = f"{percent(better.count[term.first])} against {percent(lesser.count[term.first])}"
        return f"{said} within {better.horizon} steps{but}"
    if better.ending[term.column] and lesser.ending[term.column]:
        return f"{percent(one)} against {percent(other)}{but}"
    return f"{_times(one)} against {_times(other)}{but}"


def _doubts(band: Sequence[float], fact: Future, foil: Future) -> list[str]:
    """What the data leave open of the difference, where that is much."""
    low, high = band
    ahead, behind = (fact, foil) if fact.worth >= foil.worth else (foil, fact)
    least, most = (low, high) if ahead is fact else (-high, -low)
    if not most - least > WIDE * (ahead.worth - behind.worth):
        return []
    if least < 0:
        return [
            f"the data do not settle it: by them {ahead.name} is worth {worth(-least)} less to {worth(most)} "
            f"more than {behind.name}"
        ]
    return [f"by the data the difference is {worth(least)} to {worth(most)}"]


def _beyond(fact: Future, foil: Future) -> list[str]:
    """What the horizon cuts off, where it could outweigh the difference."""
    bound = fact.bound + foil.bound
    if max(fact.running, foil.running) <= NEGLIGIBLE or bound <= abs(fact.worth - foil.worth):
        return []
    at_most = f"at most ±{bound:.3g}" if bound < float("inf") else "without bound"
    return [
        f"the episode runs on after step {fact.horizon - 1} with {percent(fact.running)} ({fact.name}) and "
        f"{percent(foil.running)} ({foil.name}): what comes then is worth {at_most}, and could outweigh this"
    ]


def overtakes(contrast: Contrast, row: int, outcome: str, fact_name: str, foil_name: str) -> str:
    """At which reward of an outcome the one that is behind overtakes the other."""
    at, now = overtaking(contrast, row, outcome), reward_of(contrast.fact.legend, outcome)
    one = slice(row, row + 1)
    fact = Future(Futures(contrast.fact[one]), 0, fact_name)
    foil = Future(Futures(contrast.foil[one]), 0, foil_name)
    for future in (fact, foil):
        if not future.known:
            return sentence(f"{_never_tried(future)}, whatever {outcome} is worth")
        if not future.foreseen:
            return sentence(f"{_into_unknown(future)}, so no reward can be named")
    ahead, behind = (fact, foil) if fact.worth >= foil.worth else (foil, fact)
    said = f"with the rest of the policy unchanged, {behind.name} overtakes {ahead.name} at"
    if at is None:
        return sentence(f"{said} no reward of {outcome}")
    if contrast.drawn and not settled(contrast, outcome)[row]:
        return sentence(
            f"the data do not say at which reward of {outcome} {behind.name} would overtake {ahead.name}, "
            "nor whether it would have to be larger or smaller than now"
        )
    article = "an" if outcome[0].lower() in "aeiou" else "a"
    return sentence(f"{said} {article} {outcome} {_price(at)} (now a {_price(now)})")


def _price(reward: float) -> str:
    return f"penalty of {-reward:.4g}" if reward < 0 else f"reward of {reward:.4g}"
