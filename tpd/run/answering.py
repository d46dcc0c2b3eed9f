"""Turns a fact and its foil into an `Answer`."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from tpd.answers.answer import Answer, Side, verdict_words
from tpd.answers.asked import Asked
from tpd.answers.batch import Answers, Choice
from tpd.answers.foil import favoured
from tpd.answers.sentences.compare import ContrastNarrator
from tpd.answers.sentences.formatting import listed, percent
from tpd.answers.sentences.inevitable import inevitable
from tpd.answers.sentences.learned import learned_instead
from tpd.answers.sentences.overtakes import overtakes
from tpd.answers.sentences.switch import switch_in_words
from tpd.answers.switch import Switch, switch_in_rollouts, switch_in_table
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation
from tpd.core.intervals import clopper_pearson
from tpd.core.pairs import NO_PAIR
from tpd.core.types import DiscretePolicy, IntArray
from tpd.run.fact_and_foil import Compared
from tpd.store.descriptions import UntrustedError

NO_CHOICE = "There is no other valid action here."


def answered(fact: Compared, foil: Compared | None, what_if: str | None = None) -> Answer:
    """Answer for a fact and its foil.

    what_if: an outcome; adds the reward of that outcome at which the ranking of fact and foil flips.
    """
    compared = [fact] if foil is None else [fact, foil]
    explained = _explained(compared)
    answer = Answers(
        facts=explained[0],
        foils=explained[-1],
        fact=np.zeros(1, dtype=np.int64),
        foil=np.array([NO_PAIR if foil is None else 0]),
        choices=[_choice(fact, foil)],
        tie=fact.expectations.tie,
        run=fact.run.name,
        reason="" if fact.expectations.simulated else fact.expectations.reason,
    )[0]
    further, switch = [NO_CHOICE] if foil is None else [], switch_of(fact, explained[0])
    if switch is not None:
        further.append(switch_in_words(switch, fact.name, fact.run.env.numbered_action_names))
    if what_if is not None and answer.contrast is not None and foil is not None:
        further.append(overtakes(answer.contrast, 0, what_if, fact.name, foil.name))
    learned = all(side.expectations.simulated and side.run.explainer.informed for side in compared)
    sides = [_side(*both, learned) for both in zip(answer.sides, compared, strict=True)]
    return replace(
        answer,
        fact=sides[0],
        foil=None if foil is None else sides[1],
        own=None if fact.own is None else fact.run.env.name_of_action(fact.own),
        sentences=(*answer.sentences, *further),
        warnings=tuple(
            learned_instead(side.explanation, side.learned, side.name) for side in sides if side.learned
        ),
        how=replace(answer.how, verdicts=verdict_words(sides[0].learned or sides[0].explanation)),
        remarks=(*answer.remarks, *_invalid(compared), *_time_limits(compared), *_unvaried(answer.sides)),
        asked=_asked(fact, foil, explained if fact.expectations.simulated else []),
        switch=switch,
    )


def _asked(fact: Compared, foil: Compared | None, rolled_out: Sequence[Explanation]) -> Asked:
    """Context for follow-up questions; a foil in another state or run is left out."""
    run, here = fact.run, foil is not None and foil.expectations is fact.expectations
    return Asked(
        run.explainer,
        run.env,
        fact.state.observation,
        fact.action,
        foil.action if foil is not None and here else None,
        tuple(side.name for side in (fact, foil) if side is not None),
        fact.own,
        run.states_met,
        tuple(rolled_out),
    )


def _explained(compared: Sequence[Compared]) -> list[Explanation]:
    """Explain each side to the end of the episode; two actions in one state are explained in one batch."""
    apart = len({id(side.expectations) for side in compared}) > 1
    if apart or any(side.followed is not None for side in compared):
        return [side.explain() for side in compared]
    here, actions = compared[0].expectations, np.stack([side.action for side in compared])
    both = here.to_the_end(here.explain(actions, draws=ENOUGH_DRAWS))
    return [both[row] for row in range(len(compared))]


def switch_of(fact: Compared, explanation: Explanation) -> Switch | None:
    """The first branching that decides how the fact's future goes on; needs rollouts or a table."""
    if explanation.rollouts is not None:
        return switch_in_rollouts(explanation)
    try:
        dynamics, policy = fact.run.dynamics(), fact.run.explainer.policy
    except UntrustedError:
        return None  # the events are functions from modules that are not trusted
    if dynamics is None or not isinstance(policy, DiscretePolicy):
        return None
    return switch_in_table(explanation, dynamics, policy)


def _invalid(compared: Sequence[Compared]) -> list[str]:
    """Remarks on actions that the environment's mask does not allow."""
    return [
        f"{side.name} is not a valid action here, by the environment's action mask"
        for side in compared
        if side.run.env.discrete
        and side.followed is None
        and not side.run.env.mask(side.state.observation)[0][int(side.action)]
    ]


def _unvaried(sides: Sequence[Side]) -> list[str]:
    """A remark on rollouts that all have the same return, though the future is not deterministic."""
    same = [side for side in sides if side.explanation.banded and not side.explanation.certain[0]]
    same = [side for side in same if _same_returns(side.explanation)]
    if not same:
        return []
    count = len(same[0].explanation.samples)
    chance = percent(float(clopper_pearson(np.zeros(1), np.array([count])).high[0]))
    return [
        f"the return after {listed([side.name for side in same])} is the same in all {count} rollouts, so "
        f"its band has no width; an event that no rollout saw may have a probability of up to {chance}"
    ]


def _same_returns(explanation: Explanation) -> bool:
    if explanation.rollouts is None or explanation.legend.reward_bound is None:
        return False
    return bool(np.ptp(explanation.drawn_returns[:, 0, -1]) == 0)


def _time_limits(compared: Sequence[Compared]) -> list[str]:
    """Remarks on episodes whose time limit falls within the horizon: no explanation models the limit."""
    said = list[str]()
    for side in compared:
        limit, moment = side.run.env.time_limit, side.state.moment
        if limit is None or moment is None:
            continue
        last = limit - moment.step - 1
        if last < side.run.explainer.predictor.horizon - 1:
            said.append(
                f"the time limit of {limit} steps ends the episode after step {last}; predictions for later "
                "steps assume that it continues"
            )
    return list(dict.fromkeys(said))


def _side(side: Side, compared: Compared, learned: bool) -> Side:
    """Add to a side what belongs to its moment."""
    return replace(
        side,
        state=compared.state.name,
        action=compared.action_name,
        learned=compared.learned() if learned else None,
        picture=compared.state.picture,
    )


def _choice(fact: Compared, foil: Compared | None) -> Choice:
    """Name what is compared; the agent's own action is named only if both sides are in the same state."""
    if foil is None:
        return Choice(fact.state.name, fact.name)
    if fact.expectations is not foil.expectations or fact.own is None:
        return Choice(fact.state.name, fact.name, foil.name)
    actions = [side for side in (fact, foil) if side.followed is None]
    named = (side.name for side in actions if np.array_equal(side.action, fact.own))
    own = next(named, fact.run.env.name_of_action(fact.own))
    choice = Choice(fact.state.name, fact.name, foil.name, own)
    if not fact.run.env.discrete or len(actions) < 2:
        return choice
    every = np.flatnonzero(fact.run.env.mask(fact.state.observation)[0])
    explanation = fact.expectations.explain(every)
    return _third(fact, foil, every, explanation, choice)._replace(inevitable=inevitable(explanation))


def _third(fact: Compared, foil: Compared, every: IntArray, explained: Explanation, choice: Choice) -> Choice:
    """Add a third action, if one has a higher return than the agent's own action.

    It must be ahead within the horizon and, where that is estimated, also to the end of the episode.
    """
    run, here = fact.run, fact.expectations
    options = np.full((1, run.env.num_actions), NO_PAIR)
    options[0, every] = np.arange(len(every))
    assert fact.own is not None
    (best,), _ = favoured(run.explainer, explained, options, np.array([fact.own]))
    if best in [fact.own, *(side.action for side in (fact, foil) if side.followed is None)]:
        return choice
    both = here.to_the_end(here.explain(np.array([best, fact.own]), draws=ENOUGH_DRAWS))
    verdict = ContrastNarrator(both[0] - both[1], here.tie).verdict(0)
    if not verdict.settled or verdict.gain < 0:
        return choice
    returns = both.expected_return[:, -1]
    if verdict.whole and both.beyond is not None:
        returns = returns + both.beyond.mean
    name = run.env.name_of_action(best)
    return choice._replace(best=(name, float(returns[0])), own_return=float(returns[1]))
