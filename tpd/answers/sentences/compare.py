"""Two pairs in sentences: which one is worth more, and why. Every number comes from the explanation."""

from collections.abc import Sequence

import numpy as np

from tpd.answers.differences import Difference, Differences
from tpd.answers.sentences.describe import (
    LARGE,
    MOST_SAID,
    NEGLIGIBLE,
    described,
    into_unknown,
    never_tried,
    not_told,
    times,
)
from tpd.answers.sentences.formatting import WIDE, bound_in_words, listed, percent, sentence, worth
from tpd.answers.sentences.summary import PairSummaries, PairSummary, Term
from tpd.answers.what_if import overtaking, reward_of, sign_certain
from tpd.core.explanation import Contrast
from tpd.core.outcomes import FIRST
from tpd.predictors.explainer import ROUNDING

MOST_AGAINST = 2


class ContrastNarrator:
    """Compares two explanations pair by pair, with all that sentences need worked out once for the batch.

    Returns that differ by less than `tie`, relative to the larger one, are about equal.
    """

    def __init__(self, contrast: Contrast, tie: float = 0.0) -> None:
        self._fact, self._foil = PairSummaries(contrast.fact), PairSummaries(contrast.foil)
        self._tie = tie
        self.differences = Differences(contrast)
        self._settled: list[bool] | None = None
        self._bands: list[list[float]] | None = None
        if self.differences.rewarded:
            self._settled = contrast.settled.tolist()
            if contrast.drawn:
                band = contrast.return_band()
                self._bands = np.stack([band.low[:, -1], band.high[:, -1]], axis=1).tolist()

    def compare(self, row: int, fact_name: str, foil_name: str, chosen: str | None = None) -> str:
        """Which of the two is worth more, and why; said too where that is not the one that was chosen."""
        return self._compare(row, *self._summaries(row, fact_name, foil_name), chosen)

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
        fact, foil = self._summaries(row, fact_name, foil_name)
        said = [described(fact), described(foil, " instead")]
        if fact.known and foil.known:
            said.append(self._compare(row, fact, foil, chosen))
        if best is not None and chosen is not None:
            own = fact if chosen == fact_name else foil
            said.append(sentence(unsupported(*best, chosen, own.worth)))
        return " ".join(filter(None, [*said, not_told(fact, foil)]))

    def _summaries(self, row: int, fact_name: str, foil_name: str) -> tuple[PairSummary, PairSummary]:
        return PairSummary(self._fact, row, fact_name), PairSummary(self._foil, row, foil_name)

    def _compare(self, row: int, fact: PairSummary, foil: PairSummary, chosen: str | None) -> str:
        for pair in (fact, foil):
            if not pair.known:
                return sentence(f"{never_tried(pair)}, and the two cannot be compared")
            if not pair.foreseen:
                return sentence(f"{pair.name} leads to the unknown, so the two cannot be compared")
        if not self.differences.rewarded:
            return sentence(_differing(self.differences.main(row), fact, foil))
        if not (fact.worth_told and foil.worth_told):
            untold = listed([pair.name for pair in (fact, foil) if not pair.worth_told])
            said = f"the return of {untold} is not learned, so returns are not compared"
            differing = _differing(self.differences.main(row), fact, foil)
            return f"{sentence(said)} {sentence(differing)}"
        if self._about_equal(fact.worth, foil.worth):
            said = f"{fact.name} and {foil.name} are worth about the same"
            said += f" ({worth(fact.worth)} and {worth(foil.worth)}{self._apart(row)})"
            return " ".join(map(sentence, [said, *_beyond(fact, foil)]))
        main, behind = self.differences.main(row), fact if fact.worth < foil.worth else foil
        if chosen == behind.name and self._settled is not None and not self._settled[row]:
            return sentence(
                f"the explained returns do not tell {fact.name} ({worth(fact.worth)}) and {foil.name} "
                f"({worth(foil.worth)}) apart{self._apart(row)}"
            )
        if behind is foil:
            said = _verdict(fact, foil, chosen) + _reasons(main, fact, foil)
        else:
            said = _verdict(foil, fact, chosen) + _reasons([_reversed(one) for one in main], foil, fact)
        if self.differences.left_out[row]:
            said += ", as far as it is learned"
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


def _verdict(better: PairSummary, lesser: PairSummary, chosen: str | None) -> str:
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


def _reversed(difference: Difference) -> Difference:
    assert difference.gain is not None
    return difference._replace(
        gain=-difference.gain, fact_count=difference.foil_count, foil_count=difference.fact_count
    )


def _reasons(differences: Sequence[Difference], better: PairSummary, lesser: PairSummary) -> str:
    """Why one is worth more, seen from the better one."""
    by_size = sorted(
        ((difference.gain or 0.0, difference) for difference in differences), key=lambda pair: -abs(pair[0])
    )
    large = LARGE * (better.worth - lesser.worth)
    pro = [_reason(difference, better, lesser) for gain, difference in by_size if gain > 0]
    if not pro:
        return ""
    contra = [_reason(difference, better, lesser) for gain, difference in by_size if gain < -large]
    said = f", mainly because of {listed(pro[:MOST_SAID])}"
    return f"{said}; against it: {listed(contra[:MOST_AGAINST])}" if contra else said


def _differing(differences: Sequence[Difference], fact: PairSummary, foil: PairSummary) -> str:
    if not differences:
        return f"{fact.name} and {foil.name} do not differ in the outcomes explained{_as_learned(fact, foil)}"
    said = listed([_reason(one, fact, foil) for one in differences[:MOST_SAID]])
    return f"{fact.name} differs from {foil.name} most in {said}"


def _as_learned(*pairs: PairSummary) -> str:
    return "" if all(all(pair.count_told) for pair in pairs) else " that are learned"


def _reason(difference: Difference, better: PairSummary, lesser: PairSummary) -> str:
    term = next(term for term in better.terms if term.name == difference.outcome.removeprefix(FIRST))
    gain = "" if difference.gain is None else f"{'+' if difference.gain > 0 else ''}{worth(difference.gain)}"
    amounts = _amounts(difference, term, better, lesser)
    steps = (
        f"step {difference.begin}"
        if difference.begin == difference.end
        else f"steps {difference.begin} to {difference.end}"
    )
    said = ": ".join(part for part in (gain, amounts) if part)
    return f"{term.name} ({', '.join(part for part in (said, f'mostly at {steps}') if part)})"


def _amounts(difference: Difference, term: Term, better: PairSummary, lesser: PairSummary) -> str:
    """How often or how likely the event is after both."""
    if not term.is_event:
        return ""
    one, other = difference.fact_count, difference.foil_count
    if abs(one - other) < NEGLIGIBLE:
        sooner = better.discounted[term.column] > lesser.discounted[term.column]
        return f"as often, but {'sooner' if sooner else 'later'}"
    sooner = better.discounted[term.column] > lesser.discounted[term.column]
    but = "" if sooner == (one > other) else f", but {'sooner' if sooner else 'later'}"
    firsts_told = term.first is not None and better.count_told[term.first] and lesser.count_told[term.first]
    if term.first is not None and firsts_told and max(one, other) <= 1 + ROUNDING:
        said = f"{percent(better.count[term.first])} against {percent(lesser.count[term.first])}"
        return f"{said} within {better.horizon} steps{but}"
    if better.ending[term.column] and lesser.ending[term.column]:
        return f"{percent(one)} against {percent(other)}{but}"
    return f"{times(one)} against {times(other)}{but}"


def _doubts(band: Sequence[float], fact: PairSummary, foil: PairSummary) -> list[str]:
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


def _beyond(fact: PairSummary, foil: PairSummary) -> list[str]:
    """What the horizon cuts off, where it could outweigh the difference."""
    bound = fact.bound + foil.bound
    if max(fact.running, foil.running) <= NEGLIGIBLE or bound <= abs(fact.worth - foil.worth):
        return []
    if not (fact.end_told and foil.end_told):
        return ["whether the episode runs on is not learned, and what comes then could outweigh this"]
    limit = bound_in_words(bound, max(abs(fact.worth), abs(foil.worth)))
    return [
        f"the episode runs on after step {fact.horizon - 1} with {percent(fact.running)} ({fact.name}) and "
        f"{percent(foil.running)} ({foil.name}): what comes then {f'is worth {limit}, and ' if limit else ''}"
        "could outweigh this"
    ]


def overtakes(contrast: Contrast, row: int, outcome: str, fact_name: str, foil_name: str) -> str:
    """At which reward of an outcome the one that is behind overtakes the other."""
    at, now = overtaking(contrast, row, outcome), reward_of(contrast.fact.legend, outcome)
    one = slice(row, row + 1)
    fact = PairSummary(PairSummaries(contrast.fact[one]), 0, fact_name)
    foil = PairSummary(PairSummaries(contrast.foil[one]), 0, foil_name)
    for pair in (fact, foil):
        if not pair.known:
            return sentence(f"{never_tried(pair)}, whatever {outcome} is worth")
        if not pair.foreseen:
            return sentence(f"{into_unknown(pair)}, so no reward can be named")
        if not pair.worth_told:
            return sentence(f"the return of {pair.name} is not learned, so no reward can be named")
    column = contrast.fact.legend.names.index(outcome)
    if not contrast.told.by[row, -1, column]:
        return sentence(f"how often {outcome} happens is not learned, so no reward can be named")
    ahead, behind = (fact, foil) if fact.worth >= foil.worth else (foil, fact)
    said = f"with the rest of the policy unchanged, {behind.name} overtakes {ahead.name} at"
    if at is None:
        return sentence(f"{said} no reward of {outcome}")
    if contrast.drawn and not sign_certain(contrast, outcome)[row]:
        return sentence(
            f"the data do not say at which reward of {outcome} {behind.name} would overtake {ahead.name}, "
            "nor whether it would have to be larger or smaller than now"
        )
    article = "an" if outcome[0].lower() in "aeiou" else "a"
    return sentence(f"{said} {article} {outcome} {_price(at)} (now a {_price(now)})")


def _price(reward: float) -> str:
    return f"penalty of {-reward:.4g}" if reward < 0 else f"reward of {reward:.4g}"
