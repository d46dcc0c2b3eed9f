"""The answer to "why did the agent do that?": one record, of which all views are made.

Terminal and notebook show an `Answer`, the report and the served model the `Answers` of a batch (`batch`).
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
    """One of the two things that an answer compares: an action in a state."""

    name: str
    """What sets it apart from the other side: the action, where both are in the same state."""
    state: str
    """Where the action is taken, in words."""
    action: str
    explanation: Explanation
    """[1]"""
    learned: Explanation | None = None
    """[1]: what was learned, where the explanation is rolled out and something was"""
    picture: Array | None = None
    """[height, width, 3]: the state"""

    def __repr__(self) -> str:
        return f"<Side: {self.action} in {self.state}>"


@dataclass(frozen=True)
class How:
    """How an answer was obtained."""

    kind: str
    """`exact`, `counted`, `rolled out` or `learned`"""
    words: str
    """The same with figures, for example `by 203 rollouts`."""
    reason: str
    """Why the simulator was not asked; empty where it was."""
    run: str
    """The run and seed that the explainer comes from."""
    verdicts: Mapping[str, str]
    """For each outcome, and the return, whether it was found to be learned; empty where nobody judged."""

    def __str__(self) -> str:
        if not self.reason:
            return f"asked of the simulator, {self.words}"
        return f"{self.words}; the simulator was not asked: {self.reason}"


@dataclass(frozen=True, repr=False)
class Answer:
    """What is expected after an action and after another one instead, and how they differ.

    `tpd.Explainer.why` gives it. `text` is for people, `table` and `to_frame()` are for programs, `plot()` is
    a figure; in a notebook the answer shows itself.

    >>> import tpd
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> answer = explainer.why(explainer.play(seeds=[0])[0][0], foil="push right")
    >>> answer.foil.name, str(answer.how)
    ('push right', 'asked of the simulator, by one rollout: nothing is random here')
    >>> sorted(answer.table.columns)[:3]
    ['difference', 'fact', 'fact_high']
    """

    fact: Side
    foil: Side | None
    """None where no other action is valid."""
    own: str | None
    """The action that the agent takes there; None where that is not known."""
    sentences: tuple[str, ...]
    """Paragraphs: what is expected of both, how they differ and why."""
    facts: tuple[Difference, ...]
    """The outcomes that account for most of the difference: those for the fact first, the larger first."""
    warnings: tuple[str, ...]
    """Where what was learned contradicts the rollouts, or nothing was learned."""
    how: How
    remarks: tuple[str, ...] = ()
    """What holds for all its numbers: how returns are discounted, and a time limit within the horizon."""
    asked: "Asked | None" = field(default=None, compare=False)
    """What more can be asked of; None for the answers of a batch."""
    switch: Switch | None = None
    """What would switch the plan after the fact; None where nothing large and certain does."""

    @property
    def text(self) -> str:
        """The sentences, with how they were obtained."""
        begin = "\n".join([f"{self.place}, {self.compared} ({self.how})", *self.actions, *self.remarks])
        return "\n\n".join([begin, *self.sentences, *self.warnings])

    @property
    def place(self) -> str:
        """What state the question is about."""
        here = self.foil is None or self.fact.state == self.foil.state
        return self.fact.state if here else f"{self.fact.state} and elsewhere"

    @property
    def compared(self) -> str:
        """What is compared."""
        return self.fact.name if self.foil is None else f"{self.fact.name} against {self.foil.name}"

    @property
    def actions(self) -> list[str]:
        """The actions in full, where sentences call them by a shorter name."""
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
        """A row for each outcome, its undiscounted total within the horizon, and a row for the return.

        Of an event it is how often it is expected to happen; of a first occurrence, how likely it is at all.
        The last row, `return`, is the expected return within the horizon: rewards discounted as in the
        sentences. It is left out where the outcomes do not account for the reward. `fact_low` to `foil_high`
        are 90 % bands, `verdict` says whether it was learned. NaN where a number is not known.
        """
        import pandas as pd  # takes long to import, and a plain answer needs none

        columns: dict[str, Any] = {"outcome": _rows(self.fact.explanation)}
        for name, side in zip(("fact", "foil"), self.sides, strict=False):
            columns |= _totals(name, side.explanation)
        if self.foil is not None:
            columns["difference"] = columns["fact"] - columns["foil"]
        if self.how.verdicts:
            columns["verdict"] = [self.how.verdicts[name] for name in columns["outcome"]]
        return pd.DataFrame(columns).set_index("outcome")

    def to_frame(self) -> "pd.DataFrame":
        """A row for each step and outcome, undiscounted and without the return, which `table` has.

        See `Explanation.to_frame` and `Contrast.to_frame`.
        """
        contrast = self.contrast
        return self.fact.explanation.to_frame() if contrast is None else contrast.to_frame()

    def plot(self) -> Any:
        """A matplotlib figure: the state, what is expected after both actions, and how they differ."""
        return draw(self, "answer")

    def drivers(
        self, event: str | None = None, by: int | None = None, against_foil: bool = False
    ) -> "Drivers":
        """What the forecast of an event relies on: Shapley values of the parts of the state.

        They are of what was learned, also where the answer itself is rolled out. Where they would mislead,
        the record says why it has none.
        event: the one that is learned and has most at stake, if left out.
        by: the step by which it happens; the last one by which it is learned, if left out.
        against_foil: of how much more likely it is after the fact than after the foil.
        """
        return self._asked.drivers(event, by, against_foil)

    def nearest_state(self) -> "NearestState":
        """The nearest state in which the agent would do the foil.

        Of all states where they have fields, the one with the fewest fields changed; else of the states met.
        """
        return self._asked.nearest_state()

    @property
    def _asked(self) -> "Asked":
        if self.asked is None:
            raise ValueError("this answer is one of a batch: ask for it alone, by explainer.why(...)")
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
    """Whether tables have a row for the return: the outcomes account for it, and none has its name."""
    return explanation.legend.reward_bound is not None and RETURN not in explanation.legend.names


def _rows(explanation: Explanation) -> tuple[str, ...]:
    return (*explanation.legend.names, RETURN) if _returns(explanation) else explanation.legend.names


def _totals(name: str, explanation: Explanation) -> dict[str, Array]:
    """The sums over the horizon [row], the return last, and their bands."""
    told = explanation.told.by[0, -1]
    sums = {name: explanation.expected[0].sum(axis=0)}
    if explanation.banded:
        band = explanation.sum_band()
        sums |= {f"{name}_low": band.low[0, -1], f"{name}_high": band.high[0, -1]}
    if _returns(explanation):
        told = np.append(told, explanation.told.returns[0, -1])
        ends = [explanation.expected_return, *(explanation.return_band() if explanation.banded else ())]
        sums = {
            column: np.append(values, end[0, -1])
            for (column, values), end in zip(sums.items(), ends, strict=True)
        }
    return {
        column: np.where(explanation.foreseen[0, -1] & told, values, np.nan)
        for column, values in sums.items()
    }


def verdict_words(explanation: Explanation) -> dict[str, str]:
    """For each outcome whether its count within the horizon was learned, and the return, by one pair."""
    if explanation.verdicts is None:
        return {}
    verdicts = explanation.verdicts.by[0, -1, :-1].tolist()
    if _returns(explanation):
        verdicts.append(explanation.verdicts.returns[0, -1])
    return {name: Verdict(verdict).words for name, verdict in zip(_rows(explanation), verdicts, strict=True)}


def kind_of(explanation: Explanation) -> str:
    """How the numbers of an explanation were obtained, in a word."""
    if explanation.rollouts is not None:
        return ROLLED_OUT
    if explanation.certain.all():
        return EXACT
    return COUNTED if explanation.counted else LEARNED
