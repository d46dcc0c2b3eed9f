"""One pair in sentences: what is expected after it, and how well that is known.

An expectation at one step is the probability of an event at that step. Words that add steps up ("by",
"within") are used only for first occurrences, which do add up.
"""

from tpd.answers.sentences.phrases import IMPOSSIBLE, likely, listed, percent, sentence, worth
from tpd.answers.sentences.summary import Future, Futures, Term
from tpd.core.bands import UNTOLD
from tpd.core.explanation import ENOUGH_VISITS, Explanation

MOST_SAID = 4
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
        return described(Future(self._futures, row, name))


def describe(explanation: Explanation, row: int, name: str) -> str:
    """What is expected after one pair: its few most consequential outcomes, and how well it is known."""
    return Narrator(explanation[row : row + 1]).describe(0, name)


def described(future: Future, also: str = "") -> str:
    if not future.known:
        return sentence(never_tried(future))
    said = [f"{future.name}{also}: {_expectations(future)}"]
    if not future.foreseen:
        said.append(into_unknown(future))
    if future.visits < FEW_VISITS:
        stand = "visit stands" if future.visits == 1 else "visits stand"
        much = "not enough data: " if future.visits < ENOUGH_VISITS else ""
        said.append(f"{much}only {future.visits:.0f} {stand} behind this")
    return " ".join(map(sentence, said))


def never_tried(future: Future) -> str:
    return f"{future.name} was never tried here, so nothing is known of it"


def into_unknown(future: Future) -> str:
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
            others.append(f"{term.name} expected {times(future.count[term.column])}")
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


def times(count: float) -> str:
    if count <= IMPOSSIBLE:
        return "never"
    if count < NEGLIGIBLE:
        return "hardly ever"
    return f"{count:.1f} times" if count >= 1 else f"{count:.2f} times"
