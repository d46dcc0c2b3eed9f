"""Sentences that compare two pairs: which has the higher return, and why.

Every number comes from the explanation.
"""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from tpd.answers.differences import Differences
from tpd.answers.sentences.afterwards import afterwards
from tpd.answers.sentences.amounts import amounts
from tpd.answers.sentences.describe import NEGLIGIBLE, described_both, never_tried, not_told
from tpd.answers.sentences.endless import apart
from tpd.answers.sentences.formatting import WIDE, gain, listed, sentence, worth
from tpd.answers.sentences.inevitable import inevitable_after
from tpd.answers.sentences.summary import PairSummaries, PairSummary
from tpd.answers.sentences.terms import LARGE
from tpd.core.contrast import Contrast
from tpd.core.explanation import ENOUGH_VISITS
from tpd.core.outcomes import FIRST
from tpd.predictors.explainer import ROUNDING

MOST_REASONS, MOST_AGAINST = 3, 1
NOT_THE_BEST = "the agent's action does not have the highest expected return: "
PRACTICAL = 0.01
"""Return differences below this fraction of all gains and losses are a practical tie."""


class Verdict(NamedTuple):
    """The comparison of two pairs by their returns."""

    gain: float
    """Return of the fact minus that of the foil, to the end of the episode if both are estimated."""
    band: tuple[float, float] | None
    """Its band, if there are posterior samples or rollouts."""
    whole: bool
    """Whether the return after the horizon is included."""
    tie: bool
    """Whether the difference is too small to matter."""
    settled: bool
    """Whether it is no tie and the band excludes 0."""
    small: float
    """Differences up to this do not matter."""


class ContrastNarrator:
    """Compares two explanations pair by pair; the numbers for sentences are computed once for the batch.

    `tie` is a relative tolerance: returns that differ by less count as equal.
    """

    def __init__(self, contrast: Contrast, tie: float = 0.0) -> None:
        self._fact, self._foil = PairSummaries(contrast.fact), PairSummaries(contrast.foil)
        self._tie = tie
        self.differences = Differences(contrast)
        self._noise: list[list[bool]] | None = None
        """[batch][outcome]: whether the band of its contribution to the difference includes 0"""
        if self.differences.rewarded:
            whole = contrast.whole()
            self._gain: list[float] = whole.mean.tolist()
            self._whole: list[bool] = whole.estimated.tolist()
            self._rest_differs: list[bool] = whole.rest_differs.tolist()
            self._band = None if whole.band is None else np.stack(whole.band, axis=1).tolist()
            self._settled: list[bool] = contrast.settled.tolist()
            if contrast.drawn:
                low, high = contrast.sums_band(contrast.fact.legend.rewards)
                self._noise = ((low <= 0) & (high >= 0)).tolist()
        self._columns = {name: column for column, name in enumerate(contrast.fact.legend.names)}
        self._undivided = len(contrast.fact.legend.components) == 1

    def compare(self, row: int, fact_name: str, foil_name: str, chosen: str | None = None) -> str:
        """Which of the two has the higher return, and why; also says if that is not the chosen one."""
        fact, foil = self._summaries(row, fact_name, foil_name)
        return self._compare(row, fact, foil, chosen)[0]

    def paragraph(
        self,
        row: int,
        fact_name: str,
        foil_name: str,
        chosen: str | None = None,
        best: tuple[str, float] | None = None,
        own_return: float | None = None,
        inevitable: Collection[str] = (),
    ) -> str:
        """The whole answer: both plans, and which has the higher return and why.

        It starts with a notice if the chosen action does not have the highest return. `best` is a third
        action with a better return than the chosen one, and its return; `own_return` is the return of the
        chosen one. `inevitable` are events that are certain after every valid action.
        """
        fact, foil = self._summaries(row, fact_name, foil_name)
        first, then = list[str](), list[str]()
        if best is not None and chosen is not None:
            own = (fact if chosen == fact_name else foil).worth if own_return is None else own_return
            first.append(sentence(NOT_THE_BEST + ahead(*best, chosen, own)))
        if fact.known and foil.known:
            said, against_choice = self._compare(row, fact, foil, chosen)
            (first if against_choice else then).append(said)
            then.append(inevitable_after(fact, foil, inevitable))
        said = described_both(fact, foil)
        return " ".join(filter(None, [*first, said, *then, not_told(fact, foil)]))

    def _summaries(self, row: int, fact_name: str, foil_name: str) -> tuple[PairSummary, PairSummary]:
        return PairSummary(self._fact, row, fact_name), PairSummary(self._foil, row, foil_name)

    def verdict(self, row: int) -> Verdict:
        """Which of the two has the higher return; the outcomes must account for the reward."""
        return self._verdict(row, *self._summaries(row, "", ""))

    def _compare(
        self, row: int, fact: PairSummary, foil: PairSummary, chosen: str | None
    ) -> tuple[str, bool]:
        """The verdict with its reasons, and whether it contradicts the choice."""
        for pair in (fact, foil):
            if not pair.known:
                return sentence(f"{never_tried(pair)}, and the two actions cannot be compared"), False
            if not pair.foreseen:
                return sentence(
                    f"{pair.name} leads to untried state-action pairs, so the two actions cannot be compared"
                ), False
        if not self.differences.rewarded:
            return sentence(self._differing(row, fact, foil)), False
        if not (fact.worth_told and foil.worth_told):
            untold = listed([pair.name for pair in (fact, foil) if not pair.worth_told])
            said = f"the return of {untold} is not learned, so returns are not compared"
            return f"{sentence(said)} {sentence(self._differing(row, fact, foil))}", False
        verdict = self._verdict(row, fact, foil)
        said = self._said(row, fact, foil, verdict, chosen)
        if missing := self.differences.left_out[row]:
            said += f"; not learned, and not included in these returns: {listed(missing)}"
        behind = fact if verdict.gain < 0 else foil
        against = verdict.settled and chosen == behind.name
        return " ".join(
            map(sentence, [said, *afterwards(fact, foil, verdict.gain, verdict.whole, verdict.small)])
        ), against

    def _verdict(self, row: int, fact: PairSummary, foil: PairSummary) -> Verdict:
        difference, whole = self._gain[row], self._whole[row]
        band = None if self._band is None else (self._band[row][0], self._band[row][1])
        totals = [_total(pair, whole) for pair in (fact, foil)]
        gross = max(fact.gross, foil.gross) + (max(abs(fact.beyond), abs(foil.beyond)) if whole else 0)
        small = max(PRACTICAL * gross, self._tie * max(map(abs, totals))) + ROUNDING
        farthest = abs(difference) if band is None else max(map(abs, band))
        settled = self._settled[row] if band is None else band[0] > 0 or band[1] < 0
        close = abs(difference) <= self._tie * max(map(abs, totals)) + ROUNDING
        tie = farthest <= small or (close and settled)  # a wide band around 0 says nothing, not "a tie"
        enough = not (fact.counted and min(fact.visits, foil.visits) < ENOUGH_VISITS)
        return Verdict(difference, band, whole, tie, settled and enough and not tie, small)

    def _said(
        self, row: int, fact: PairSummary, foil: PairSummary, verdict: Verdict, chosen: str | None
    ) -> str:
        scope = _scope(fact, foil, verdict)
        values = [f"{worth(_total(pair, verdict.whole))} for {pair.name}" for pair in (fact, foil)]
        if not verdict.settled:
            said = "a practical tie" if verdict.tie else "the data do not tell which is worth more"
            return f"{said}{scope}: a return of {values[0]}, {values[1]}{_apart(verdict)}"
        better, lesser = (fact, foil) if verdict.gain > 0 else (foil, fact)
        returns = _total(better, verdict.whole), _total(lesser, verdict.whole)
        more = f"{worth(abs(verdict.gain))}{_between(verdict)} more than {lesser.name}{scope}"
        said = f"{better.name} is worth {more} ({worth(returns[0])} against {worth(returns[1])})"
        if chosen == lesser.name:
            said = NOT_THE_BEST + said
        return said + self._reasons(row, better, lesser, verdict, better is foil)

    def _reasons(
        self, row: int, better: PairSummary, lesser: PairSummary, verdict: Verdict, swapped: bool
    ) -> str:
        """Reasons why the better one has the higher return; without outcomes whose band includes 0."""
        later = better.beyond - lesser.beyond
        rest_matters = self._rest_differs[row] and abs(later) > LARGE * abs(verdict.gain)
        found = list[tuple[float, str]]()
        for outcome, of_fact in self.differences.gains(row).items():
            added = -of_fact if swapped else of_fact
            if self._undivided and not rest_matters and not better.endless:  # it would repeat the difference
                return f", {self._amount(row, outcome, added, better, lesser)}"
            if self._noise is None or not self._noise[row][self._columns[outcome]]:
                found.append((added, self._reason(row, outcome, added, better, lesser)))
        if rest_matters:
            found.append((later, f"the return after step {better.horizon - 1} ({gain(later)})"))
        found.sort(key=lambda pair: -abs(pair[0]))
        pro = [said for added, said in found if added > 0]
        contra = [said for added, said in found if added < -LARGE * abs(verdict.gain)]
        said = f", because of {listed(pro[:MOST_REASONS])}" if pro else ""
        return f"{said}, despite {listed(contra[:MOST_AGAINST])}" if pro and contra else said

    def _differing(self, row: int, fact: PairSummary, foil: PairSummary) -> str:
        differing = list(self.differences.gains(row))[:MOST_REASONS]
        if not differing:
            told = zip(fact.count_told, foil.count_told, strict=True)
            if not any(one and other for one, other in told):
                return f"no outcome is learned for both {fact.name} and {foil.name}, so they are not compared"
            learned = "" if all([*fact.count_told, *foil.count_told]) else " that are learned"
            return f"{fact.name} and {foil.name} do not differ in the predicted outcomes{learned}"
        said = listed([self._reason(row, outcome, 0.0, fact, foil) for outcome in differing])
        return f"{fact.name} differs from {foil.name} most in {said}"

    def _reason(self, row: int, outcome: str, added: float, better: PairSummary, lesser: PairSummary) -> str:
        """The difference in one outcome, and its contribution to the return of the better one."""
        name, said = outcome.removeprefix(FIRST), self._amount(row, outcome, added, better, lesser)
        return f"{name} ({gain(added)}, {said})" if added else f"{name} ({said})"

    def _amount(self, row: int, outcome: str, added: float, better: PairSummary, lesser: PairSummary) -> str:
        """The difference in one outcome: both amounts, or the steps at which most of it arises."""
        term = next(term for term in better.terms if term.name == outcome.removeprefix(FIRST))
        if better.endless:
            return apart(better, lesser, term.number)
        if said := amounts(term, added, better, lesser):
            return said
        begin, end, cancel = self.differences.steps(row, outcome)
        steps = f"step {begin}" if begin == end else f"steps {begin} to {end}"
        return f"the net result of larger gains and losses at {steps}" if cancel else f"mostly at {steps}"


def ahead(best: str, best_return: float, own: str, own_return: float) -> str:
    """The clause that one action has a higher return than another."""
    return f"{best} has a higher expected return ({worth(best_return)}) than {own} ({worth(own_return)})"


def _total(pair: PairSummary, whole: bool) -> float:
    """The return to the end of the episode, or to the horizon."""
    return pair.worth + (pair.beyond if whole else 0.0)


def _scope(fact: PairSummary, foil: PairSummary, verdict: Verdict) -> str:
    """The number of steps that returns cover; empty if they reach the end of the episode."""
    if fact.endless or verdict.whole or max(fact.running, foil.running) <= NEGLIGIBLE:
        return ""
    return f" within {fact.horizon} step{'s' if fact.horizon > 1 else ''}"


def _apart(verdict: Verdict) -> str:
    """The band of the difference as text."""
    if verdict.band is None:
        return ""
    least = NEGLIGIBLE if verdict.tie else ROUNDING
    low, high = (worth(end if abs(end) > least else 0.0) for end in verdict.band)
    return "" if low == high else f" (a difference of {low} to {high})"


def _between(verdict: Verdict) -> str:
    """The band of the difference as text, if it is wide."""
    if verdict.band is None:
        return ""
    low, high = sorted(map(abs, verdict.band))
    return f" ({worth(low)} to {worth(high)})" if high - low > WIDE * abs(verdict.gain) else ""
