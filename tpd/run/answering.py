"""From what is compared to an answer."""

import numpy as np

from tpd.answers import what_if as rewards
from tpd.answers.answer import Answer, How, Side, kind_of, verdict_words
from tpd.answers.differences import Difference, Differences
from tpd.answers.sentences import compare
from tpd.answers.sentences.describe import describe
from tpd.answers.sentences.learned import learned_instead
from tpd.core.explanation import Contrast, together
from tpd.run.fact_and_foil import Compared

NO_CHOICE = "There is no other valid action here."


def answered(fact: Compared, foil: Compared | None, what_if: str | None = None) -> Answer:
    """The answer about a fact and its foil; with `what_if`, also at which reward of it they change places."""
    compared = [fact] if foil is None else [fact, foil]
    learned = all(side.expectations.simulated and side.run.explainer.informed for side in compared)
    sides = [_side(side, learned) for side in compared]
    sentences, facts = [describe(sides[0].explanation, 0, fact.name), NO_CHOICE], list[Difference]()
    if foil is not None:
        contrast = sides[0].explanation - sides[1].explanation
        sentences, facts = _said(fact, foil, contrast, what_if), Differences(contrast).main(0)
    return Answer(
        fact=sides[0],
        foil=None if foil is None else sides[1],
        own=None if fact.own is None else fact.run.env.name_of_action(fact.own),
        sentences=tuple(sentences),
        facts=tuple(facts),
        warnings=tuple(
            learned_instead(side.explanation, side.learned, side.name) for side in sides if side.learned
        ),
        how=_how(fact, sides),
    )


def _side(compared: Compared, learned: bool) -> Side:
    return Side(
        name=compared.name,
        state=compared.state.name,
        action=compared.action_name,
        explanation=compared.explain(),
        learned=compared.learned() if learned else None,
        picture=compared.state.picture,
    )


def _how(fact: Compared, sides: list[Side]) -> How:
    explanation = together([side.explanation for side in sides])
    return How(
        kind=kind_of(explanation),
        words=explanation.obtained,
        reason="" if fact.expectations.simulated else fact.expectations.reason,
        run=fact.run.name,
        verdicts=verdict_words(sides[0].learned or sides[0].explanation),
    )


def _said(fact: Compared, foil: Compared, contrast: Contrast, what_if: str | None) -> list[str]:
    """The paragraphs of the answer."""
    chosen, best = None, None
    if fact.expectations is foil.expectations and fact.own is not None:
        chosen = next((side.name for side in (fact, foil) if np.array_equal(side.action, fact.own)), None)
        chosen = chosen or fact.run.env.name_of_action(fact.own)
        best = _favoured(fact, foil)
    said = [compare.paragraph(contrast, 0, fact.name, foil.name, chosen, fact.expectations.tie, best)]
    if what_if is not None:
        said.append(compare.overtakes(contrast, 0, what_if, fact.name, foil.name))
    return said


def _favoured(fact: Compared, foil: Compared) -> tuple[str, float] | None:
    """A third action that the explained returns favour over the agent's own, and its return."""
    run = fact.run
    if not run.env.discrete or run.explainer.legend.reward_bound is None:
        return None
    valid = run.env.mask(fact.state.observation)
    actions = np.flatnonzero(valid[0])
    explanation = fact.expectations.explain(actions)
    returns = np.full(valid.shape, np.nan)
    returns[0, actions] = rewards.returns(explanation, {})
    best = int(run.explainer.favoured(returns, np.array([fact.own]), valid)[0])
    if best in (fact.own, fact.action, foil.action):
        return None
    gain = explanation[actions == best] - explanation[actions == fact.own]
    if not gain.settled[0]:
        return None
    return run.env.name_of_action(best), float(returns[0, best])
