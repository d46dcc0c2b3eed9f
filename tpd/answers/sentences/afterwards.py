"""Sentences about the return after the horizon, in a comparison of two pairs."""

from tpd.answers.sentences.describe import NEGLIGIBLE
from tpd.answers.sentences.formatting import WIDE, gain, listed, worth
from tpd.answers.sentences.summary import PairSummary


def afterwards(fact: PairSummary, foil: PairSummary, apart: float, whole: bool, small: float) -> list[str]:
    """Sentences about the return after the horizon, if it matters: its estimate, or why there is none.

    apart: the return difference, to the end of the episode if `whole`.
    small: returns up to this size do not matter.
    """
    last = fact.horizon - 1
    if whole:
        later = [pair for pair in (fact, foil) if abs(pair.beyond) > small]
        if not later:
            return []
        what = f"the steps after step {last}{_risks(fact, foil)}"
        if len(later) == 2 and _more(fact) == _more(foil):
            return [f"for {what}, both returns include {_more(fact)}"]
        each = [f"the return of {pair.name} includes {_more(pair)}" for pair in later]
        return [f"for {what}, {listed(each)}"]
    bound = fact.bound + foil.bound
    if max(fact.running, foil.running) <= NEGLIGIBLE or bound <= abs(apart):
        return []
    if not (fact.end_told and foil.end_told):
        return [
            f"when the episode ends is not learned, so the return after step {last} could change this "
            "comparison"
        ]
    if unended := max(fact.unended, foil.unended):
        return [
            f"the return after step {last} is not estimated, because rollouts of {unended} steps do not end"
        ]
    return [f"the return after step {last} is not estimated, and could change this comparison"]


def _risks(fact: PairSummary, foil: PairSummary) -> str:
    """A note that a loss after the horizon includes risks, which are not listed with probabilities."""
    if min(fact.beyond, foil.beyond) >= 0:
        return ""
    risks = [term.name for term in fact.terms if fact.risk[term.number] or foil.risk[term.number]]
    return f", including any later {listed(risks, 'or')}" if risks else ""


def _more(pair: PairSummary) -> str:
    """The return after the horizon as text, with its band if that is wide."""
    band = pair.beyond_band
    if band is None or band[1] - band[0] <= WIDE * abs(pair.beyond):
        return gain(pair.beyond)
    return f"{gain(pair.beyond)} ({worth(band[0])} to {worth(band[1])})"
