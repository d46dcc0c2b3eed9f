"""Converts answers to the records that tools return; computes nothing new."""

import math
from typing import Any

from tpd.answers import what_if
from tpd.answers.answer import LEARNED, Answer
from tpd.answers.differences import Difference
from tpd.answers.drivers import Drivers
from tpd.assistants import records
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST, Legend
from tpd.core.verdicts import Verdict

MOST_OUTCOMES, MOST_STEPS, LONGEST_TEXT = 60, 200, 12_000
NO_NUMBER = {Verdict.NOT_LEARNED.words, Verdict.TOO_RARE.words}


def figure_of(value: float | None) -> float | None:
    """A number rounded to six digits; None if it is missing or not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.6g}")


def text_of(said: str) -> str:
    """A text, cut to a maximal length."""
    return said if len(said) <= LONGEST_TEXT else f"{said[:LONGEST_TEXT]} ... (cut)"


def how_of(answer: Answer) -> records.How:
    """How an answer was obtained."""
    how = answer.how
    return records.How(
        kind=how.kind, words=how.words, simulator_not_asked_because=how.reason or None, run=how.run
    )


def unit_of(legend: Legend, outcome: str, at_a_step: bool = False) -> str:
    """The meaning of an outcome's numbers."""
    if outcome in legend.events and at_a_step:
        return "probability at this step" + (" for the first time" if outcome.startswith(FIRST) else "")
    if outcome.startswith(FIRST):
        return "probability of happening at all within the horizon"
    return "expected number of times" if outcome in legend.events else "expected sum"


def doubts_of(answer: Answer) -> list[str]:
    """What must be said beside an answer: warnings, and outcomes without numbers."""
    untold = [f"{name}: {verdict}" for name, verdict in answer.how.verdicts.items() if verdict in NO_NUMBER]
    said = list(answer.warnings)
    if untold and answer.how.kind == LEARNED:
        said.append(f"outcomes that were not learned have no number: {', '.join(untold[:MOST_OUTCOMES])}")
    if any(side.explanation.sparse.any() for side in answer.sides):
        said.append("one of the actions was tried too rarely for a reliable estimate")
    if answer.foil is None:
        said.append("there is no other valid action here")
    if answer.own is not None and answer.own != answer.fact.action:
        said.append(f"the agent did not take {answer.fact.action} here: it took {answer.own}")
    contrast = answer.contrast
    valued = answer.fact.explanation.legend.reward_bound is not None
    if contrast is not None and contrast.drawn and valued and not _settled(contrast):
        said.append("the data do not tell which of the two actions has the higher return")
    return [text_of(each) for each in said]


def answer_record(answer: Answer) -> records.AnswerRecord:
    """An answer as plain values."""
    legend, table = answer.fact.explanation.legend, answer.table
    rows = table.head(MOST_OUTCOMES).astype(object).to_dict("index")
    outcomes = [
        records.OutcomeEstimate(
            outcome=str(name),
            unit=unit_of(legend, str(name)),
            verdict=row.pop("verdict", None),
            **{str(column): figure_of(value) for column, value in row.items()},
        )
        for name, row in rows.items()
    ]
    doubts = doubts_of(answer)
    if len(table) > len(outcomes):
        doubts.append(f"only the first {len(outcomes)} of {len(table)} outcomes are listed")
    return records.AnswerRecord(
        place=answer.place,
        fact=answer.fact.action,
        foil=None if answer.foil is None else answer.foil.action,
        agents_own_action=answer.own,
        text=text_of("\n\n".join(answer.sentences)),
        how=how_of(answer),
        horizon=answer.fact.explanation.horizon,
        returns=_returns(answer),
        outcomes=outcomes,
        reasons=[_reason(difference) for difference in answer.facts[:MOST_OUTCOMES]],
        remarks=list(answer.remarks),
        doubts=doubts,
    )


def _reason(difference: Difference) -> records.Reason:
    return records.Reason(
        outcome=difference.outcome,
        adds_to_return=figure_of(difference.gain),
        fact_count=float(f"{difference.fact_count:.6g}"),
        foil_count=float(f"{difference.foil_count:.6g}"),
        first_step=difference.begin,
        last_step=difference.end,
    )


def _returns(answer: Answer) -> records.ReturnEstimate | None:
    """The returns of both actions; None if the outcomes do not account for the reward."""
    if answer.fact.explanation.legend.reward_bound is None:
        return None
    found = dict[str, Any]()
    for name, side in zip(("fact", "foil"), answer.sides, strict=False):
        found |= _return_of(name, side.explanation)
    contrast = answer.contrast
    if contrast is None or found["fact"] is None or found["foil"] is None:
        return records.ReturnEstimate(**found)
    whole = contrast.whole()
    if whole.band is not None:
        found |= {f"difference_{name}": figure_of(end[0]) for name, end in whole.band._asdict().items()}
    found["difference"] = figure_of(whole.mean[0])
    return records.ReturnEstimate(**found, to_the_end=bool(whole.estimated[0]), settled=_settled(contrast))


def _settled(contrast: Contrast) -> bool:
    """Whether it is certain which action has the higher return, beyond the horizon if that is estimated."""
    band = contrast.whole().band
    return bool(contrast.settled[0]) if band is None else bool(band.low[0] > 0 or band.high[0] < 0)


def _return_of(name: str, explanation: Explanation) -> dict[str, float | None]:
    worth = figure_of(what_if.returns(explanation, {})[0])
    if worth is None or not explanation.banded:
        return {name: worth}
    band = explanation.return_band()._asdict()
    return {name: worth, **{f"{name}_{side}": figure_of(end[0, -1]) for side, end in band.items()}}


def by_steps(answer: Answer, outcome: str) -> records.OutcomeBySteps:
    """The expectation of one outcome at each step, as plain values."""
    frame, legend = answer.to_frame(), answer.fact.explanation.legend
    if answer.foil is None:
        frame = frame.rename(columns={"expected": "fact"})
    kept = [name for name in ("fact", "foil", "difference", "low", "high") if name in frame]
    rows = frame[frame["outcome"] == outcome].head(MOST_STEPS)
    doubts = doubts_of(answer)
    if answer.fact.explanation.horizon > MOST_STEPS:
        doubts.append(f"only the first {MOST_STEPS} of {answer.fact.explanation.horizon} steps are listed")
    return records.OutcomeBySteps(
        place=answer.place,
        fact=answer.fact.action,
        foil=None if answer.foil is None else answer.foil.action,
        outcome=outcome,
        unit=unit_of(legend, outcome, at_a_step=True),
        steps=[
            records.StepEstimate(step=int(row["step"]), **{name: figure_of(row[name]) for name in kept})
            for row in rows.to_dict("records")
        ],
        how=how_of(answer),
        doubts=doubts,
    )


def drivers_record(drivers: Drivers) -> records.DriversRecord:
    """The drivers of a forecast, the most important one first."""
    order = sorted(range(len(drivers.values)), key=lambda k: -abs(drivers.values[k]))
    return records.DriversRecord(
        text=text_of(drivers.text),
        forecast=figure_of(drivers.forecast),
        mean_forecast=figure_of(drivers.base),
        drivers=[
            records.Driver(
                part=drivers.shown[k], value=float(drivers.values[k]), standard_error=float(drivers.errors[k])
            )
            for k in order[:MOST_OUTCOMES]
        ],
        doubts=[drivers.withheld] if drivers.withheld else [],
    )
