"""Builds packets of texts and questions with their keys, and scores answers."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from reading.falsified import Falsified, falsify
from reading.questions import NOW, QUOTAS, Question, questions
from reading.worlds import Case, World
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST

ARMS = ("nothing", "probabilities", "values", "bars", "sentences", "falsified")
LETTERS = "abcdefgh"
MOST_CASES, ENOUGH_CASES, MOST_OF_A_CASE = 60, 10, 4
INTRODUCTION = """# Reading test

An agent acts in a world whose rules you do not know; all names in it are made up. Each case is a place \
where the agent took one action, and another one is compared with it. After either action the agent goes on \
as it always does. Steps are counted from the place on: step 0 is the action itself. All questions are about \
the first {horizon} steps, 0 to {last}.

Answer every question, from what the case says; if it does not say it, give your best guess. Put the letter \
of one option, or a number, into the answer template at the end.
"""


@dataclass
class Asked:
    """A case with its questions."""

    case: Case
    questions: list[Question] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text of tpd about the case."""
        named = [question.what_if for question in self.questions if question.what_if is not None]
        return self.case.answer(named[0] if named else None).text


def choose(world: World, seed: int) -> list[Asked]:
    """Choose cases and questions, balanced over the kinds: two per case, more if that is not enough."""
    rng, left = np.random.default_rng([seed, 1]), Counter(QUOTAS)
    seen, texts = list[tuple[Asked, dict[str, Question]]](), set[str]()
    for case in islice(world.cases(rng), MOST_CASES):
        said = case.answer(None).sentences[0]
        if said in texts:
            continue
        texts.add(said)
        seen.append((Asked(case), questions(case, rng)))
        strong = {kind: question for kind, question in seen[-1][1].items() if not question.weak}
        _take(seen[-1][0], strong, left, most=2, least=2)
        if len(seen) >= ENOUGH_CASES:
            for asked, possible in seen:
                _take(asked, possible, left, MOST_OF_A_CASE, least=1)
        if not +left:
            return [asked for asked, _ in seen if asked.questions]
    raise ValueError(f"{world.name}: found no questions of the kinds {dict(+left)} in {len(seen)} cases")


def _take(asked: Asked, possible: Mapping[str, Question], left: Counter[str], most: int, least: int) -> None:
    """Add questions of the kinds that are still needed, the rarest kind first."""
    for_reward = {question.what_if for question in asked.questions if question.what_if is not None}
    taken = {question.kind for question in asked.questions}
    kinds = [
        kind for kind in sorted(possible, key=lambda kind: -left[kind]) if left[kind] and kind not in taken
    ]
    chosen = list[str]()
    for kind in kinds:
        about = possible[kind].what_if
        if len(taken) + len(chosen) < most and (about is None or not for_reward or about in for_reward):
            chosen.append(kind)
            for_reward |= set() if about is None else {about}
    if len(chosen) < min(least, sum(left.values())):
        return
    for kind in chosen:
        asked.questions.append(possible[kind])
        left[kind] -= 1


def material(asked: Asked, arm: str) -> str:
    """What a reader gets for a case in an arm; empty if the agent has no such numbers."""
    case, horizon = asked.case, asked.case.side(0).horizon
    if arm == "probabilities" and case.probabilities is not None:
        return f"Probabilities of the agent's actions here: {_numbers(case.actions, case.probabilities)}."
    if arm == "values" and case.values is not None:
        return f"The agent's own Q-values of its actions here: {_numbers(case.actions, case.values)}."
    if arm == "bars":
        sides = case.answer(None).sides
        bars = "\n".join(f"- after {side.name}: {_bars(side.explanation)}" for side in sides)
        return f"Expected discounted reward within the {horizon} steps, by part:\n\n{bars}"
    return asked.text if arm in ("sentences", "falsified") else ""


def falsification(asked: Asked) -> tuple[Falsified, Question] | None:
    """The text of a case with one fact changed, and the question about it; None if no fact can be changed.

    The current reward also occurs in other cases, so it is the last choice.
    """
    case = asked.case
    fact, foil = (side.name for side in case.answer(None).sides)
    outcomes = [name.removeprefix(FIRST) for name in case.side(0).legend.names]
    for question in sorted(asked.questions, key=lambda question: question.about.what == NOW):
        found = falsify(asked.text, question.about, (fact, foil), outcomes)
        if found is not None:
            return found, question
    return None


def _numbers(names: Sequence[str], values: Sequence[float]) -> str:
    return ", ".join(f"{name} {value:.2f}" for name, value in zip(names, values, strict=True))


def _bars(explanation: Explanation) -> str:
    return _numbers(explanation.component_names, explanation.component_returns[0, -1].tolist())


def packet(world: World, chosen: Sequence[Asked], arm: str, seed: int) -> tuple[str, dict[str, Any]]:
    """The Markdown of a packet, and its key."""
    parts = [INTRODUCTION.format(horizon=world.horizon, last=world.horizon - 1)]
    key = dict[str, Any]()
    changes = dict[str, list[tuple[str, str]]]()
    for number, asked in enumerate(chosen, start=1):
        answer = asked.case.answer(None)
        assert answer.foil is not None
        text, changed = material(asked, arm), falsification(asked) if arm == "falsified" else None
        if changed is not None:
            text, changes[f"case {number}"] = changed[0]
        parts.append(f"## Case {number}: the agent took {answer.fact.name}, not {answer.foil.name}\n")
        parts += [text, ""] if text else []
        for question in asked.questions:
            id = f"q{len(key) + 1:02d}"
            key[id] = _key(question, changed is not None and _same_fact(question, changed[1]))
            parts.append(f"**{id}** {question.prompt}\n")
            parts += [f"- {LETTERS[i]}) {option}" for i, option in enumerate(question.options)]
            parts += [""] if question.options else []
    template = json.dumps(dict.fromkeys(key), indent=1)
    parts.append(f"## Answers\n\n```json\n{template}\n```\n")
    about = {"world": world.name, "arm": arm, "seed": seed, "questions": key, "changes": changes}
    return "\n".join(parts), about


def _same_fact(one: Question, other: Question) -> bool:
    return (one.about.what, one.about.outcome, one.about.side) == (
        other.about.what,
        other.about.outcome,
        other.about.side,
    )


def _key(question: Question, falsified: bool) -> dict[str, Any]:
    right: Any = question.answer
    if question.options:
        right = LETTERS[int(question.answer)]
    return {
        "kind": question.kind,
        "answer": right,
        "tolerance": question.tolerance,
        "options": len(question.options),
        "falsified": falsified,
    }


def is_right(question: Mapping[str, Any], given: Any) -> bool:
    """Whether an answer is the right option, or close enough to the right number."""
    if question["options"]:
        found = re.match(r"\s*\(?([a-h])\b", given.lower()) if isinstance(given, str) else None
        return found is not None and found[1] == question["answer"]
    try:
        value = float(str(given).strip().rstrip("%"))
    except ValueError:
        return False
    return abs(value - float(question["answer"])) <= float(question["tolerance"]) + 1e-9


def scores(key: Mapping[str, Any], answers: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Right answers and number of questions: in total, by kind, and falsified ones separately."""
    counted = dict[str, list[bool]]()
    for id, question in key["questions"].items():
        right = is_right(question, answers.get(id))
        apart = "falsified" if question["falsified"] else "not falsified"
        for group in ("all", apart, question["kind"]):
            counted.setdefault(group, []).append(right)
    return {group: (sum(rights), len(rights)) for group, rights in counted.items()}


def write(world: World, out: Path, arms: Sequence[str], seed: int) -> Iterator[Path]:
    """Write the packets of a world below `packets`, and their keys below `keys`."""
    chosen = choose(world, seed)
    for arm in arms:
        text, key = packet(world, chosen, arm, seed)
        for path, said in (
            (out / "packets" / f"{world.name}-{arm}.md", text),
            (out / "keys" / f"{world.name}-{arm}.json", json.dumps(key, indent=1)),
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(said)
        yield out / "packets" / f"{world.name}-{arm}.md"
