"""Sentences that describe one pair: expected events, and how well they are known."""

from collections.abc import Sequence

from tpd.answers.sentences.endless import not_predicted
from tpd.answers.sentences.formatting import listed, percent, sentence
from tpd.answers.sentences.plan import Clause, Plan, in_order, planned, tells
from tpd.answers.sentences.summary import PairSummaries, PairSummary
from tpd.core.explanation import ENOUGH_VISITS, FEW_VISITS, Explanation
from tpd.core.verdicts import Verdict

NEGLIGIBLE = 0.005
UNTOLD_BECAUSE = {
    Verdict.NOT_LEARNED: "not learned, so no number is given: {}; for an estimate by rollouts, ask about a "
    "recorded step (tpd-explain run=... episode=... step=...), or learn from more transitions "
    "(training.steps)",
    Verdict.TOO_RARE: "too rare in the evaluation to tell whether it is learned: {}; for an estimate by "
    "rollouts, ask about a recorded step, or evaluate on more episodes (evaluation.forecast_episodes)",
}


class Narrator:
    """Describes the pairs of one explanation."""

    def __init__(self, explanation: Explanation) -> None:
        self._summaries = PairSummaries(explanation)

    def describe(self, row: int, name: str) -> str:
        """The expected events after one pair in time order, and how well they are known."""
        pair = PairSummary(self._summaries, row, name)
        return " ".join(filter(None, [described(pair), not_told(pair)]))


def described(pair: PairSummary) -> str:
    """The expected events after a pair, as far as they are learned."""
    if not pair.known:
        return sentence(never_tried(pair))
    return _told(pair, pair.name, planned(pair))


def described_both(fact: PairSummary, foil: PairSummary) -> str:
    """The expected events after both; for the foil only the differences, if there are few."""
    if not (fact.known and foil.known):
        return f"{described(fact)} {described(foil)}"
    plan, other = planned(fact), planned(foil)
    said = _told(fact, fact.name, plan)
    here, there = _clauses(plan), _clauses(other)
    differing = [clause for clause in there if clause.text not in {one.text for one in here}]
    same_names = [one.name for one in here] == [one.name for one in there]
    vague, other_vague = ([one.name for one in each.too_wide] for each in (plan, other))
    silent = plan.absent == other.absent and vague == other_vague
    if here and same_names and 3 * len(differing) <= len(here) and silent:
        but = f", but {listed([one.text for one in differing])}" if differing else ""
        return f"{said} {_with_doubts(foil, [f'{foil.name} instead: the same{but}'])}"
    unlike = other._replace(absent=[name for name in other.absent if name not in plan.absent])
    return f"{said} {_told(foil, f'{foil.name} instead', unlike, vague)}"


def _clauses(plan: Plan) -> list[Clause]:
    return [*plan.milestones, *plan.further, *plan.risks]


def _told(pair: PairSummary, name: str, plan: Plan, explained: Sequence[str] = ()) -> str:
    """The sentences about a pair. Reasons for missing numbers are not repeated for events in `explained`."""
    risks = _risks(pair, plan)
    events = _events(pair, plan, explained) or (risks.pop(0) if plan.risks else _nothing(pair))
    return _with_doubts(pair, [f"{name}: {events}", *risks])


def _with_doubts(pair: PairSummary, said: list[str]) -> str:
    """The sentences, plus how well the pair is known."""
    if not pair.foreseen:
        said.append(into_unknown(pair))
    if pair.counted and pair.visits < FEW_VISITS:
        visits = "visit" if pair.visits == 1 else "visits"
        much = "not enough data: " if pair.visits < ENOUGH_VISITS else ""
        said.append(f"{much}based on only {pair.visits:.0f} {visits}")
    return " ".join(map(sentence, said))


def _events(pair: PairSummary, plan: Plan, explained: Sequence[str]) -> str:
    said = [in_order(plan.milestones)] if plan.milestones else []
    said += [clause.text for clause in plan.further]
    if plan.too_wide:
        again = {clause.name for clause in plan.too_wide} <= set(explained)
        said.append(_too_wide(pair, plan.too_wide, again))
    return "; ".join(said)


def _risks(pair: PairSummary, plan: Plan) -> list[str]:
    """The risks, and which risks are not expected."""
    said = list[str]()
    if plan.risks:
        said.append(f"risk of {'; '.join(clause.text for clause in plan.risks)}")
    if plan.absent:
        ends = pair.end_told and pair.running <= NEGLIGIBLE
        are = "is" if len(plan.absent) == 1 else "are"
        until = "" if ends else f" by step {pair.horizon - 1}"
        said.append(f"{listed(plan.absent)} {are} not expected{until}")
    return said


def not_told(*pairs: PairSummary) -> str:
    """The outcomes without reported numbers, and what would help; empty if there are none."""
    said = list[str]()
    if all(pair.verdict is None for pair in pairs):
        return ""
    if pairs[0].endless:
        return sentence(not_predicted(pairs[0]))
    for verdict, about in UNTOLD_BECAUSE.items():
        names = {pair.name: _names(pair, verdict) for pair in pairs if pair.known}
        if len({tuple(one) for one in names.values()}) == 1:
            names = {"": next(iter(names.values()))}
        if given := {pair: listed(outcomes) for pair, outcomes in names.items() if outcomes}:
            said.append(about.format("; ".join(f"{o} (after {p})" if p else o for p, o in given.items())))
    return " ".join(map(sentence, said))


def _names(pair: PairSummary, verdict: Verdict) -> list[str]:
    """The outcomes without reported numbers because of this verdict."""
    if pair.verdict is None:
        return []
    silent = [term for term in pair.terms if not tells(pair, term)]
    columns = {term.name: term.column if term.first is None else term.first for term in silent}
    return [name for name, column in columns.items() if pair.verdict[column] == verdict]


def never_tried(pair: PairSummary) -> str:
    return f"{pair.name} was never tried in this state, so nothing is known about it"


def into_unknown(pair: PairSummary) -> str:
    if pair.endless:
        return (
            f"the discounted probability of reaching an untried state-action pair after {pair.name} is "
            f"{percent(pair.unknown)}"
        )
    return (
        f"the future after {pair.name} is partly unknown from step {pair.unknown_from} on: the probability "
        f"of reaching an untried state-action pair by step {pair.horizon - 1} is {percent(pair.unknown)}"
    )


def _too_wide(pair: PairSummary, clauses: Sequence[Clause], explained: bool) -> str:
    """A clause about events with too wide bands; also why, and what would help, if not explained before.

    A learned forecast is still given, with its band: it is right on average.
    """
    names = f"{listed([clause.name for clause in clauses])} {'is' if len(clauses) == 1 else 'are'}"
    if pair.counted or pair.rolled_out:
        much = "not enough data" if pair.counted else "too few rollouts"
        return f"{much} to tell how likely {names}"
    said = f"uncertain: {listed([clause.text for clause in clauses])}"
    why = "such forecasts had errors of this size, or too few were evaluated within evaluation.seconds"
    return said if explained else f"{said} ({why}; for an estimate by rollouts, ask about a recorded step)"


def _nothing(pair: PairSummary) -> str:
    """The clause for a pair without any event to report."""
    told = [tells(pair, term) for term in pair.terms]
    if not any(told):
        return "nothing about it is learned"
    return "none of the outcomes is expected" if all(told) else "no learned outcome is expected"
