"""Sentences about returns over an infinite horizon, for methods without predictions of single steps."""

from tpd.answers.differences import narrowest
from tpd.answers.sentences.formatting import IMPOSSIBLE, gain, worth
from tpd.answers.sentences.summary import PairSummary

MOST_TERMS = 6
SMALLEST = 0.005
"""Terms below this fraction of the largest one are left out."""
MOST_OF_IT = 0.8
"""The fraction of the return that falls within the reported steps."""


def endless(pair: PairSummary) -> str:
    """The return of a pair, with its terms or with the steps that most of it comes from, as predicted."""
    if not pair.foreseen:
        return "its return over an infinite horizon is unknown"
    terms = [term for term in pair.terms if pair.terms_told[term.number]]
    factors = [(term.weight or 0) if pair.rewarded else 1 for term in terms]
    totals = {t.name: factor * pair.discounted[t.number] for t, factor in zip(terms, factors, strict=True)}
    largest = sorted(totals, key=lambda name: -abs(totals[name]))[:MOST_TERMS]
    least = max([SMALLEST * abs(total) for total in totals.values()], default=0.0) + IMPOSSIBLE
    parts = [f"{name} {gain(totals[name])}" for name in largest if abs(totals[name]) > least]
    what = f"a return of {worth(pair.worth)}" if pair.rewarded else "discounted totals"
    said = f"{what} over an infinite horizon"
    if terms:
        return f"{said}: {', '.join(parts)}" if parts else f"{said}; no outcome adds to it"
    if pair.rewards is None:
        return f"{said}; it is not learned at every step when the reward is expected"
    begin, end = narrowest(pair.rewards, MOST_OF_IT)
    steps = f"step {begin}" if begin == end else f"steps {begin} to {end}"
    return f"{said}, mostly from {steps}{' or later' if end == pair.horizon - 1 else ''}"


def not_predicted(pair: PairSummary) -> str:
    """What a method with such returns does not predict."""
    if any(pair.terms_told):
        return "this method predicts how much each outcome adds over an infinite horizon, but not when"
    return "this method predicts when reward is expected, but not which outcomes it comes from"


def apart(better: PairSummary, lesser: PairSummary, t: int) -> str:
    """The discounted totals of both for an outcome."""
    return f"discounted total {worth(better.discounted[t])} against {worth(lesser.discounted[t])}"
