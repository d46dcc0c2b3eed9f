"""A sentence about the reward at which one pair overtakes the other."""

from tpd.answers.sentences.describe import into_unknown, never_tried
from tpd.answers.sentences.formatting import sentence
from tpd.answers.sentences.summary import PairSummaries, PairSummary
from tpd.answers.what_if import overtaking, reward_of, sign_certain
from tpd.core.contrast import Contrast
from tpd.core.formats import price


def overtakes(contrast: Contrast, row: int, outcome: str, fact_name: str, foil_name: str) -> str:
    """The reward of an outcome at which the pair with the lower return overtakes the other."""
    at, now = overtaking(contrast, row, outcome), reward_of(contrast.fact.legend, outcome)
    one = slice(row, row + 1)
    fact = PairSummary(PairSummaries(contrast.fact[one]), 0, fact_name)
    foil = PairSummary(PairSummaries(contrast.foil[one]), 0, foil_name)
    unknown = f"the reward of {outcome} at which their order changes is unknown"
    for pair in (fact, foil):
        if not pair.known:
            return sentence(f"{never_tried(pair)}, and {unknown}")
        if not pair.foreseen:
            return sentence(f"{into_unknown(pair)}, so {unknown}")
        if not pair.worth_told:
            return sentence(f"the return of {pair.name} is not learned, so {unknown}")
    column = contrast.fact.legend.names.index(outcome)
    if not contrast.told.terms[row, column]:
        why = "not predicted by this method" if fact.endless else "not learned"
        return sentence(f"how often {outcome} happens is {why}, so {unknown}")
    ahead, behind = (fact, foil) if fact.worth >= foil.worth else (foil, fact)
    said = f"with the rest of the policy unchanged, {behind.name}"
    certain = bool(contrast.fact.certain[row] and contrast.foil.certain[row])
    if contrast.drawn and not certain and not sign_certain(contrast)[row, column]:
        return sentence(
            f"the data do not say at which reward of {outcome} {behind.name} would overtake {ahead.name}, "
            "nor whether it would have to be larger or smaller than now"
        )
    if at is None:
        goes_on = max(fact.running, foil.running) > 0
        within = f" within {fact.horizon} step{'s' if fact.horizon > 1 else ''}" if goes_on else ""
        return sentence(f"{said} does not overtake {ahead.name}{within} at any reward of {outcome}")
    if contrast.drawn:
        low, high = (float(end[row, -1]) for end in contrast.return_band())
        if low <= 0 <= high:
            said = f"by the point estimates, while the data do not tell which return is higher now, {said}"
    article = "an" if outcome[0].lower() in "aeiou" else "a"
    or_beyond = "or more" if (at > now) == (at >= 0) else "or less"
    price_at = f"{article} {outcome} {_price(at)} {or_beyond} (now a {_price(now)})"
    return sentence(f"{said} overtakes {ahead.name} at {price_at}")


def _price(reward: float) -> str:
    return f"penalty of {price(-reward)}" if reward < 0 else f"reward of {price(reward)}"
