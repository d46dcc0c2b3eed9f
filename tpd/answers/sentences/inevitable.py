"""Sentences about inevitable risks: certain after every action."""

from collections.abc import Collection

from tpd.answers.sentences.formatting import CERTAIN, is_wide, sentence
from tpd.answers.sentences.summary import PairSummaries, PairSummary
from tpd.answers.sentences.terms import Term
from tpd.core.explanation import ENOUGH_VISITS, Explanation


def inevitable_after(fact: PairSummary, foil: PairSummary, everywhere: Collection[str]) -> str:
    """The risks that are certain after both actions, or after every valid one."""
    certain = [term for term in fact.terms if _is_certain_risk(fact, term) and _is_certain_risk(foil, term)]
    said = list[str]()
    for term in certain:
        step = max(fact.spoken[term.number], foil.spoken[term.number])
        after = "after every valid action" if term.name in everywhere else "after both actions"
        said.append(
            sentence(f"inevitable {after}, if the agent then follows its policy: {term.name} by step {step}")
        )
    return " ".join(said)


def inevitable(explanation: Explanation) -> tuple[str, ...]:
    """The events with a large penalty that are certain after all of these pairs."""
    summaries = PairSummaries(explanation)
    pairs = [PairSummary(summaries, row, "") for row in range(len(explanation))]
    return tuple(t.name for t in summaries.terms if all(_is_certain_risk(pair, t) for pair in pairs))


def _is_certain_risk(pair: PairSummary, term: Term) -> bool:
    """Whether an event is a risk and certain within the horizon, with enough data to say so."""
    t = term.number
    if not pair.risk[t] or pair.spoken[t] < 0 or not pair.foresees(pair.spoken[t]):
        return False
    if pair.counted and pair.visits < ENOUGH_VISITS:
        return False
    band = None if pair.chance_band is None else pair.chance_band[t]
    return pair.chance[t] >= CERTAIN and not is_wide(band)
