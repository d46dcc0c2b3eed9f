"""Answers to a batch of questions, computed together, for the report and the served model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from tpd.answers.answer import Answer, How, Side, kind_of, verdict_words
from tpd.answers.differences import Difference, Differences
from tpd.answers.sentences.compare import ContrastNarrator
from tpd.answers.sentences.describe import Narrator
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation, together
from tpd.core.pairs import NO_PAIR, blocks
from tpd.core.types import IntArray


class Choice(NamedTuple):
    """The names in one question: state, fact, foil and the agent's own action."""

    state: str
    fact: str
    """The name of the action in sentences."""
    foil: str | None = None
    own: str | None = None
    """The agent's own action; None if unknown."""
    best: tuple[str, float] | None = None
    """A third action with a better explained return than the agent's own, and its return."""
    own_return: float | None = None
    """The return of the agent's own action, if there is a better third action."""
    inevitable: tuple[str, ...] = ()
    """Events with a large penalty that are certain after every valid action, if all are explained."""


@dataclass(frozen=True, repr=False)
class Answers:
    """The answers to a batch of questions; `answers[row]` is one of them.

    Sentences are computed lazily for the whole batch, so hundreds of answers take little longer than their
    explanations.
    """

    facts: Explanation
    """[pair]"""
    foils: Explanation
    """[pair]: may be the same object as `facts`"""
    fact: IntArray
    """[question]: row of its fact in `facts`"""
    foil: IntArray
    """[question]: row of its foil in `foils`, or `NO_PAIR`"""
    choices: Sequence[Choice]
    """[question]"""
    tie: float = 0.0
    """Relative tolerance: returns that differ by less count as equal."""
    run: str = ""
    """The run and seed that the explainer comes from."""
    reason: str = ""
    """Why the simulator was not used; empty if it was."""

    def __len__(self) -> int:
        return len(self.fact)

    @cached_property
    def contrasted(self) -> IntArray:
        """[contrasted]: the questions with a foil."""
        return np.flatnonzero(self.foil != NO_PAIR)

    @cached_property
    def contrast(self) -> Contrast:
        """[contrasted]: fact minus foil, as arrays."""
        return self._contrast(self.contrasted)

    def _contrast(self, questions: IntArray) -> Contrast:
        return self.facts[self.fact[questions]] - self.foils[self.foil[questions]]

    @cached_property
    def sentences(self) -> list[str]:
        """[question]: a paragraph about fact and foil, or about the fact alone."""
        said = [""] * len(self)
        for block in blocks(len(self.contrasted)):
            questions = self.contrasted[block]
            narrator = ContrastNarrator(self._contrast(questions), self.tie)
            for row, question in enumerate(questions.tolist()):
                about = self.choices[question]
                assert about.foil is not None
                said[question] = narrator.paragraph(
                    row, about.fact, about.foil, about.own, about.best, about.own_return, about.inevitable
                )
        alone = np.flatnonzero(self.foil == NO_PAIR)
        for block in blocks(len(alone)):
            describing = Narrator(self.facts[self.fact[alone[block]]])
            for row, question in enumerate(alone[block].tolist()):
                said[question] = describing.describe(row, self.choices[question].fact)
        return said

    def __getitem__(self, question: int) -> "Answer":
        about, foil, differences = self.choices[question], None, list[Difference]()
        row, other = int(self.fact[question]), int(self.foil[question])
        fact = Side(about.fact, about.state, about.fact, self.facts[row : row + 1])
        explanation = fact.explanation
        if about.foil is not None:
            foil = Side(about.foil, about.state, about.foil, self.foils[other : other + 1])
            explanation = together([fact.explanation, foil.explanation])
            differences = Differences(fact.explanation - foil.explanation).main(0)
        return Answer(
            fact=fact,
            foil=foil,
            own=about.own,
            sentences=(self.sentences[question],),
            facts=tuple(differences),
            warnings=(),
            how=How(
                kind=kind_of(explanation),
                words=explanation.obtained,
                reason=self.reason,
                run=self.run,
                verdicts=verdict_words(fact.explanation),
            ),
            remarks=_remarks(fact.explanation),
        )


def _remarks(explanation: Explanation) -> tuple[str, ...]:
    """Remarks on the method, and on the discount if it is below 1."""
    method = (explanation.remark,) if explanation.remark else ()
    if explanation.legend.reward_bound is None or explanation.discount == 1:
        return method
    return (*method, f"returns are discounted by {explanation.discount:g} a step")
