"""The answer to "why did the agent do that?": one record, from which all views are made.

Terminal and notebook show an `Answer`; the report and the served model show the `Answers` of a `batch`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from tpd.answers.differences import Difference
from tpd.answers.switch import Switch
from tpd.core.contrast import Contrast
from tpd.core.drawing import draw
from tpd.core.explanation import Explanation
from tpd.core.types import Array
from tpd.core.verdicts import Verdict

if TYPE_CHECKING:
    import pandas as pd

    from tpd.answers.asked import Asked
    from tpd.answers.drivers import Drivers
    from tpd.answers.nearest import NearestState

EXACT, COUNTED, ROLLED_OUT, LEARNED = "exact", "counted", "rolled out", "learned"
RETURN = "return"


@dataclass(frozen=True, repr=False)
class Side:
    """One side of an answer, fact or foil: an action in a state, with its explanation."""

    name: str
    """The name in sentences: the action, if both sides are in the same state."""
    state: str
    """The state, as text."""
    action: str
    explanation: Explanation
    """[1]"""
    learned: Explanation | None = None
    """[1]: the learned explanation, if there is one and `explanation` comes from rollouts"""
    picture: Array | None = None
    """[height, width, 3]: an image of the state"""

    def __repr__(self) -> str:
        return f"<Side: {self.action} in {self.state}>"


@dataclass(frozen=True)
class How:
    """How an answer was obtained."""

    kind: str
    """`exact`, `counted`, `rolled out` or `learned`"""
    words: str
    """The same with numbers, for example `by 203 rollouts`."""
    reason: str
    """Why the simulator was not used; empty if it was."""
    run: str
    """The run and seed that the explainer comes from."""
    verdicts: Mapping[str, str]
    """The verdict on each outcome and on the return; empty if they were not judged."""

    def __str__(self) -> str:
        if not self.reason:
            return f"from the simulator, {self.words}"
        return f"{self.words}; the simulator was not used: {self.reason}"


@dataclass(frozen=True, repr=False)
class Answer:
    """Expected outcomes after an action (fact) and after another one (foil), and their difference.

    `tpd.Explainer.why` returns it. `text` is for people, `table` and `to_frame()` are for programs, `plot()`
    is a figure. In a notebook the answer displays itself.

    >>> import tpd
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> answer = explainer.why(explainer.play(seeds=[0])[0][0], foil="push right")
    >>> answer.foil.name, str(answer.how)
    ('push right', 'from the simulator, by one rollout: policy and environment are deterministic here')
    >>> sorted(answer.table.columns)[:3]
    ['difference', 'fact', 'fact_high']
    """

    fact: Side
    foil: Side | None
    """None if no other action is valid."""
    own: str | None
    """The action that the agent takes in this state; None if unknown."""
    sentences: tuple[str, ...]
    """Paragraphs: expected outcomes of both sides, their difference and its reasons."""
    facts: tuple[Difference, ...]
    """The outcomes that account for most of the difference: those for the fact first, largest first."""
    warnings: tuple[str, ...]
    """Contradictions between learned predictions and rollouts, or that nothing was learned."""
    how: How
    remarks: tuple[str, ...] = ()
    """Remarks on all its numbers: the discount of returns, and a time limit within the horizon."""
    asked: "Asked | None" = field(default=None, compare=False)
    """The context for `drivers` and `nearest_state`; None for the answers of a batch."""
    switch: Switch | None = None
    """A condition on the first steps that decides the future after the fact; None if none is found."""

    @property
    def text(self) -> str:
        """All sentences, headed by the question and how the answer was obtained."""
        begin = "\n".join([f"{self.place}, {self.compared} ({self.how})", *self.actions, *self.remarks])
        return "\n\n".join([begin, *self.sentences, *self.warnings])

    @property
    def place(self) -> str:
        """The state that the question is about."""
        here = self.foil is None or self.fact.state == self.foil.state
        return self.fact.state if here else f"{self.fact.state} and elsewhere"

    @property
    def compared(self) -> str:
        """The names of fact and foil."""
        return self.fact.name if self.foil is None else f"{self.fact.name} against {self.foil.name}"

    @property
    def actions(self) -> list[str]:
        """The full actions, if sentences use a shorter name."""
        return [f"{side.name}: {side.action}" for side in self.sides if side.action not in side.name]

    @property
    def sides(self) -> tuple[Side, ...]:
        """The fact and, if there is one, the foil."""
        return (self.fact,) if self.foil is None else (self.fact, self.foil)

    @property
    def contrast(self) -> Contrast | None:
        """[1]: fact minus foil, as arrays."""
        return None if self.foil is None else self.fact.explanation - self.foil.explanation

    @property
    def table(self) -> "pd.DataFrame":
        """One row for each outcome, with its undiscounted total within the horizon, and one for the return.

        The total of an event is its expected count; that of a first occurrence is its probability. The last
        row, for example `return within 30 steps`, is the expected discounted return within the horizon; it is
        left out if the outcomes do not account for the reward. A method that predicts totals over an infinite
        horizon (verdict "over an infinite horizon") has these instead, discounted. `fact_low` to `foil_high`
        are 90 % bands, and `verdict` says whether the total was learned. Unknown numbers are NaN. To print
        all columns, use `print(answer.table.to_string())`.
        """
        import pandas as pd  # slow to import, and a plain answer does not need it

        columns: dict[str, Any] = {"outcome": _rows(self.fact.explanation)}
        for name, side in zip(("fact", "foil"), self.sides, strict=False):
            columns |= _totals(name, side.explanation)
        if self.foil is not None:
            columns["difference"] = columns["fact"] - columns["foil"]
        if self.how.verdicts:
            columns["verdict"] = [self.how.verdicts[name] for name in columns["outcome"]]
        last = {RETURN: return_row(self.fact.explanation)} if _returns(self.fact.explanation) else {}
        return pd.DataFrame(columns).set_index("outcome").rename(index=last)

    def to_frame(self) -> "pd.DataFrame":
        """One row for each step and outcome, undiscounted; the return is in `table`.

        See `Explanation.to_frame` and `Contrast.to_frame`.
        """
        contrast = self.contrast
        return self.fact.explanation.to_frame() if contrast is None else contrast.to_frame()

    def plot(self) -> Any:
        """A matplotlib figure: the state, expected outcomes after both actions, and their difference."""
        return draw(self, "answer")

    def drivers(
        self, event: str | None = None, by: int | None = None, against_foil: bool = False
    ) -> "Drivers":
        """Shapley values of the parts of the state, for the learned forecast of an event.

        They explain the learned forecast, even if the answer itself comes from rollouts. If they would
        mislead, the record has no values and says why.
        event: default is the learned event with the most at stake (probability times reward).
        by: forecast "by this step"; default is the last step for which the forecast is learned.
        against_foil: explain the difference of the forecasts after fact and foil.
        """
        return self._asked.drivers(event, by, against_foil)

    def nearest_state(self) -> "NearestState":
        """The nearest state in which the agent would choose the foil.

        If states have named fields, all states are searched for the one with the fewest changed fields; else
        the states that the agent visited are searched.
        """
        return self._asked.nearest_state()

    @property
    def _asked(self) -> "Asked":
        if self.asked is None:
            raise ValueError(
                "drivers and nearest_state need the answer to a single question: call explainer.why(...)"
            )
        return self.asked

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"<Answer: {self.place}, {self.compared}, {self.how.words}>"

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(part)}</p>" for part in self.text.split("\n\n"))
        shown = self.fact.explanation if self.contrast is None else self.contrast
        return f"<div style='max-width:60em'>{said}</div>{shown._repr_html_()}"


def _returns(explanation: Explanation) -> bool:
    """Whether tables have a row for the return: outcomes account for it, and none is called "return"."""
    return explanation.legend.reward_bound is not None and RETURN not in explanation.legend.names


def _rows(explanation: Explanation) -> tuple[str, ...]:
    return (*explanation.legend.names, RETURN) if _returns(explanation) else explanation.legend.names


def return_row(explanation: Explanation) -> str:
    """The name of the return in tables, which stop at the horizon; sentences may reach beyond it."""
    if explanation.endless:
        return f"{RETURN}, infinite horizon"
    return f"{RETURN} within {explanation.horizon} step{'' if explanation.horizon == 1 else 's'}"


def _totals(name: str, explanation: Explanation) -> dict[str, Array]:
    """The totals over the horizon [row], the return last, and their bands."""
    told = explanation.told.terms[0]
    weights = explanation.discounts if explanation.endless else np.ones(explanation.horizon)
    sums = {name: weights @ explanation.expected[0]}
    if explanation.banded:
        band = explanation.sum_band()
        sums |= {f"{name}_low": band.low[0, -1], f"{name}_high": band.high[0, -1]}
    if _returns(explanation):
        told = np.append(told, explanation.told.returns[0, -1])
        ends = [explanation.expected_return, *(explanation.return_band() if explanation.banded else ())]
        pairs = zip(sums.items(), ends, strict=True)
        sums = {column: np.append(values, end[0, -1]) for (column, values), end in pairs}
    known = explanation.foreseen[0, -1] & told
    return {column: np.where(known, values, np.nan) for column, values in sums.items()}


def verdict_words(explanation: Explanation) -> dict[str, str]:
    """The verdicts on the totals of all outcomes and on the return, for one pair."""
    if explanation.verdicts is None:
        return {}
    verdicts = explanation.verdicts.by[0, -1, :-1].tolist()
    if _returns(explanation):
        verdicts.append(explanation.verdicts.returns[0, -1])
    return {name: Verdict(verdict).words for name, verdict in zip(_rows(explanation), verdicts, strict=True)}


def kind_of(explanation: Explanation) -> str:
    """How an explanation was obtained: exact, counted, rolled out or learned."""
    if explanation.rollouts is not None:
        return ROLLED_OUT
    if explanation.certain.all():
        return EXACT
    return COUNTED if explanation.counted else LEARNED
