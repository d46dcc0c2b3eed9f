"""One pair in sentences: what is expected after it, and how well that is known.

An expectation at one step is the probability of an event at that step. Words that add steps up ("by",
"within") are used only for first occurrences, which do add up.
"""

from tpd.answers.sentences.formatting import IMPOSSIBLE, likely, listed, percent, sentence, worth
from tpd.answers.sentences.summary import PairSummaries, PairSummary, Term
from tpd.core.bands import UNTOLD
from tpd.core.explanation import ENOUGH_VISITS, Explanation
from tpd.core.verdicts import Verdict

MOST_SAID = 4
FEW_VISITS = 30
NEGLIGIBLE = 0.005
WORTH_SAYING = 0.05
"""As a share of the largest stake, and as a probability."""
UNTOLD_BECAUSE = {
    Verdict.NOT_LEARNED: "not learned, so no number is given: {}; rollouts of a recorded moment tell it "
    "(tpd-explain run=... episode=... step=...), and more transitions may teach it",
    Verdict.TOO_RARE: "too rare in fresh episodes to tell whether it is learned: {}; rollouts of a recorded "
    "moment tell it, or more episodes (evaluation.forecast_episodes)",
}
LOOMING = 0.5
"""A risk so likely comes before all else."""
LARGE = 0.25
"""As a share: of the difference for what speaks against it, of the largest stake for what has no peak."""


class Narrator:
    """Tells of the pairs of one explanation."""

    def __init__(self, explanation: Explanation) -> None:
        self._summaries = PairSummaries(explanation)

    def describe(self, row: int, name: str) -> str:
        """What is expected after one pair: its few most consequential outcomes, and how well it is known."""
        pair = PairSummary(self._summaries, row, name)
        return " ".join(filter(None, [described(pair), not_told(pair)]))


def describe(explanation: Explanation, row: int, name: str) -> str:
    """What is expected after one pair: its few most consequential outcomes, and how well it is known."""
    return Narrator(explanation[row : row + 1]).describe(0, name)


def described(pair: PairSummary, also: str = "") -> str:
    """What is expected of it, as far as it is learned."""
    if not pair.known:
        return sentence(never_tried(pair))
    said = [f"{pair.name}{also}: {_expectations(pair)}"]
    if not pair.foreseen:
        said.append(into_unknown(pair))
    if pair.counted and pair.visits < FEW_VISITS:
        stand = "visit stands" if pair.visits == 1 else "visits stand"
        much = "not enough data: " if pair.visits < ENOUGH_VISITS else ""
        said.append(f"{much}only {pair.visits:.0f} {stand} behind this")
    return " ".join(map(sentence, said))


def not_told(*pairs: PairSummary) -> str:
    """What no number is given of after these pairs, and what would help; empty where that is nothing."""
    said = list[str]()
    for verdict, about in UNTOLD_BECAUSE.items():
        names = {pair.name: _names(pair, verdict) for pair in pairs if pair.known}
        if len({tuple(one) for one in names.values()}) == 1:
            names = {"": next(iter(names.values()))}
        given = {pair: listed(outcomes) for pair, outcomes in names.items() if outcomes}
        if given:
            said.append(about.format("; ".join(f"{o} (after {p})" if p else o for p, o in given.items())))
    return " ".join(map(sentence, said))


def _names(pair: PairSummary, verdict: Verdict) -> list[str]:
    """The outcomes of which nothing is told for that reason."""
    if pair.verdict is None:
        return []
    silent = [term for term in pair.terms if not tells(pair, term)]
    columns = {term.name: term.column if term.first is None else term.first for term in silent}
    return [name for name, column in columns.items() if pair.verdict[column] == verdict]


def tells(pair: PairSummary, term: Term) -> bool:
    """Whether a number of the outcome may be given."""
    if not term.is_event or pair.count_told[term.column]:
        return pair.count_told[term.column]
    return pair.peak_told[term.column] or (_lasts(pair, term) and _once(pair, term) is not None)


def _lasts(pair: PairSummary, term: Term) -> bool:
    """Whether the event happens but once, as far as it is asked for, so that it has happened or not."""
    return term.first is not None or pair.ending[term.column]


def never_tried(pair: PairSummary) -> str:
    return f"{pair.name} was never tried here, so nothing is known of it"


def into_unknown(pair: PairSummary) -> str:
    return (
        f"from step {pair.unknown_from} on the future after {pair.name} is partly unknown: with "
        f"{percent(pair.unknown)} it has come to what was never tried by step {pair.horizon - 1}"
    )


def _expectations(pair: PairSummary) -> str:
    peaks, others, untold = list[Term](), list[str](), list[str]()
    looming, risks = list[str](), list[str]()
    for term in _worth_saying(pair):
        if not term.is_event:
            others.append(_component(pair, term))
        elif _untold(pair, term):
            untold.append(term.name)
        elif (term.weight or 0) < 0 and pair.ending[term.column] and _once(pair, term) is not None:
            (looming if _looms(pair, term) else risks).append(_risk(pair, term))
        elif _peaks(pair, term):
            peaks.append(term)
        elif term.first is not None and pair.spoken[term.first] >= 0:
            others.append(f"{term.name} {_by_when(pair, term.first)}: {_ever(pair, term.first)}")
        elif pair.count_told[term.column]:
            others.append(f"{term.name} expected {times(pair.count[term.column])}")
    peaks.sort(key=lambda term: pair.peak_step[term.column])
    in_order = [_peak(pair, term, "at" if i else "most likely at") for i, term in enumerate(peaks)]
    said = [*looming, *([", ".join(in_order)] if peaks else []), *others, *risks]
    if untold:
        said.append(_too_wide(pair, f"{listed(untold)} {'is' if len(untold) == 1 else 'are'}"))
    return "; ".join(said) or _nothing(pair)


def _too_wide(pair: PairSummary, names: str) -> str:
    """That a band is too wide for a number, why, and what would help."""
    if pair.counted:
        return f"not enough data to tell how likely {names}"
    if pair.rolled_out:
        return f"too few rollouts to tell how likely {names}"
    return (
        f"what was learned does not tell how likely {names}: too few moments were rolled out to know its "
        "error (rollouts of a recorded moment tell it, or a larger evaluation.seconds)"
    )


def _nothing(pair: PairSummary) -> str:
    """Where nothing is worth saying, or nothing of it may be said."""
    silent = any(not tells(pair, term) for term in pair.terms)
    return "nothing that was learned is expected" if silent else "none of the outcomes is expected"


def _once(pair: PairSummary, term: Term) -> int | None:
    """The column that says how likely an event is at all, if that may be said."""
    column = term.column if term.first is None else term.first
    return column if pair.spoken[column] >= 0 else None


def _worth_saying(pair: PairSummary) -> list[Term]:
    """The rare and consequential first; what fills most of the steps only if there is nothing else."""
    count = pair.count
    every = [term for term in pair.terms if abs(count[term.column]) > IMPOSSIBLE and tells(pair, term)]
    special = [term for term in every if not term.fills or count[term.column] <= max(1, pair.steps / 2)]
    stakes = {term: abs((term.weight or 0) * count[term.column]) for term in special}
    largest = max(stakes.values(), default=0.0)
    staked = [
        term
        for term, stake in stakes.items()
        if stake and stake >= (WORTH_SAYING if _stands_out(pair, term) else LARGE) * largest
    ]
    free = [t for t in special if t.weight is None and t.is_event and pair.peak[t.column] >= WORTH_SAYING]
    staked.sort(key=lambda term: -stakes[term])
    free.sort(key=lambda term: (term.first is None, -pair.peak[term.column]))
    return (staked + free)[:MOST_SAID] or sorted(every, key=lambda term: -count[term.column])[:1]


def _untold(pair: PairSummary, term: Term) -> bool:
    """Whether the band of an event is so wide that its probability says nothing."""
    if pair.count_band is None or (term.first is None and not pair.ending[term.column]):
        return False
    column = _once(pair, term)
    if column is None:
        return False
    low, high = pair.count_band[column]
    return high - low > UNTOLD


def _stands_out(pair: PairSummary, term: Term) -> bool:
    """Whether there is more to say of an outcome than how often it is expected."""
    return not term.is_event or term.first is not None or pair.ending[term.column] or _peaks(pair, term)


def _peaks(pair: PairSummary, term: Term) -> bool:
    """Whether an event happens at one step more than at all others, and before the last one explained."""
    low, high = (0.0, 0.0) if pair.peak_band is None else pair.peak_band[term.column]
    if high - low > UNTOLD or not pair.peak_told[term.column]:
        return False
    last = pair.peak_step[term.column] == pair.horizon - 1
    return 2 * pair.peak[term.column] >= pair.count[term.column] and not (last and pair.horizon > 1)


def _peak(pair: PairSummary, term: Term, at: str) -> str:
    """When the event is most likely and, where that is known and says more, how likely it is at all."""
    k, step, at_all = term.column, pair.peak_step[term.column], term.first
    band = None if pair.peak_band is None else pair.peak_band[k]
    said = f"{term.name} {at} step {step} ({likely(pair.peak[k], band, pair.foresees(step), '[]')}"
    if at_all is None or pair.spoken[at_all] < 0 or percent(pair.spoken_sum[at_all]) == percent(pair.peak[k]):
        return f"{said})"
    return f"{said}; {_ever(pair, at_all, '[]')} {_by_when(pair, at_all)})"


def _by_when(pair: PairSummary, first: int) -> str:
    """By when the probability of a first occurrence is as large as it gets."""
    step = pair.spoken[first]
    if step == 0:
        return "at step 0"
    return f"by step {step}" if step < pair.horizon - 1 else f"within {pair.horizon} steps"


def _risk(pair: PairSummary, term: Term) -> str:
    column = _once(pair, term)
    assert column is not None
    by_when = "" if term.first is None and pair.count_told[column] else f" {_by_when(pair, column)}"
    return f"{_ever(pair, column)} risk of {term.name}{by_when}"


def _looms(pair: PairSummary, term: Term) -> bool:
    """Whether a risk is so large that it is said first."""
    column = _once(pair, term)
    return column is not None and pair.spoken_sum[column] >= LOOMING


def _ever(pair: PairSummary, column: int, brackets: str = "()") -> str:
    """How likely an event is at all, and how sure that is."""
    band = None if pair.count_band is None else pair.count_band[column]
    return likely(pair.spoken_sum[column], band, pair.foresees(pair.spoken[column]), brackets)


def _component(pair: PairSummary, term: Term) -> str:
    if term.weight is None:
        return f"{term.name} adds up to {worth(pair.count[term.column])}"
    return f"{term.name} adds {worth(pair.discounted[term.column] * term.weight)} to the return"


def times(count: float) -> str:
    if count <= IMPOSSIBLE:
        return "never"
    if count < NEGLIGIBLE:
        return "hardly ever"
    return f"{count:.1f} times" if count >= 1 else f"{count:.2f} times"
