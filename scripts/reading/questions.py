"""Questions about a case; their right answers come from arrays, never from a text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reading.worlds import Case
from tpd.answers import what_if
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST, Legend
from tpd.core.types import FloatArray

QUOTAS = {"order": 4, "when": 4, "likely": 4, "risk": 3, "flip": 3, "reward": 2}
"""Number of questions of each kind in a packet."""
STEPS_RIGHT, POINTS_RIGHT = 2, 5
WRONG = (-1.0, 10.0, -0.1)
"""Factors for the rewards of wrong reward functions."""
STEP, PERCENT, THRESHOLD, NOW, ORDER = "step", "percent", "threshold", "now", "order"
"""Kinds of facts that a text states about an outcome."""


class About(NamedTuple):
    """The fact that a question asks for."""

    what: str
    outcome: str
    side: int
    """0 is the fact, 1 the foil."""
    true: float
    false: float
    """The number in a falsified text; it leads to another answer."""
    other: str = ""
    """For questions about an order: the outcome that happens next."""


@dataclass(frozen=True)
class Question:
    """A question that a program can score."""

    kind: str
    prompt: str
    options: tuple[str, ...]
    """Empty if the answer is a number."""
    answer: float
    """The index of the right option, or the number itself."""
    tolerance: float
    about: About
    what_if: str | None = None
    """The outcome whose reward the text must mention."""
    weak: bool = False
    """Asked only if there are too few others, for example about the probability of a certain event."""


def questions(case: Case, rng: np.random.Generator) -> dict[str, Question]:
    """The questions that have a clear answer here, by kind."""
    if case.answer(None).contrast is None:
        return {}
    found = {kind: make(case, rng) for kind, make in MAKERS.items()}
    return {kind: question for kind, question in found.items() if question is not None}


class Time(NamedTuple):
    """When an event first happens."""

    total: float
    """Its probability within the horizon."""
    peak: int
    clear: bool
    """Whether most of the probability lies around the peak."""


def times(explanation: Explanation) -> dict[str, Time]:
    """The times of all events, for an explanation [1]."""
    names = [name for name in explanation.legend.names if name.startswith(FIRST)]
    return {name.removeprefix(FIRST): _time(_column(explanation, name)) for name in names}


def _column(explanation: Explanation, name: str) -> FloatArray:
    return np.asarray(explanation.expected[0, :, explanation.legend.names.index(name)])


def _time(first: FloatArray) -> Time:
    peak, total = int(first.argmax()), float(first.sum())
    around = first[max(0, peak - STEPS_RIGHT) : peak + STEPS_RIGHT + 1].sum()
    return Time(total, peak, bool(total > 0 and around >= 0.8 * total and first[peak] >= 0.25))


def _choice(
    kind: str, prompt: str, options: list[str], right: str, about: About, rng: np.random.Generator
) -> Question:
    """A question with its options in random order."""
    shuffled = [options[i] for i in rng.permutation(len(options))]
    return Question(kind, prompt, tuple(shuffled), shuffled.index(right), 0, about)


def _order(case: Case, rng: np.random.Generator) -> Question | None:
    """Which of several events happens first."""
    answer, known = case.answer(None), times(case.side(0))
    likely = sorted((time.peak, name) for name, time in known.items() if time.total >= 0.8 and time.clear)
    unclear = [
        name for name, time in known.items() if time.total > 0.05 and not (time.total >= 0.8 and time.clear)
    ]
    if len(likely) < 2 or likely[1][0] - likely[0][0] < 3 or unclear:
        return None
    options = [name for _, name in likely] + [name for name, time in known.items() if time.total <= 0.05]
    first, second = likely[0], likely[1]
    about = About(ORDER, first[1], 0, first[0], second[0], second[1])
    prompt = f"After {answer.fact.name}, which of these most likely happens first?"
    return _choice("order", prompt, options[:4], first[1], about, rng)


def _when(case: Case, rng: np.random.Generator) -> Question | None:
    """At which step an event happens."""
    answer = case.answer(None)
    found = [
        (side, name, time)
        for side in (0, 1)
        for name, time in times(case.side(side)).items()
        if time.total >= 0.5 and time.clear and time.peak >= 2
    ]
    if not found:
        return None
    side, name, time = found[rng.integers(len(found))]
    later = time.peak < 7 or (rng.random() < 0.5 and time.peak + 6 < case.side(side).horizon)
    moved = 6 if later else -5
    prompt = (
        f"After {answer.sides[side].name}, at which step is the first {name} most likely? "
        f"(a whole number; {STEPS_RIGHT} more or less counts as right)"
    )
    about = About(STEP, name, side, time.peak, time.peak + moved)
    return Question("when", prompt, (), time.peak, STEPS_RIGHT, about)


def _likely(case: Case, rng: np.random.Generator) -> Question | None:
    """How likely an event is within the horizon."""
    answer = case.answer(None)
    found = [
        (side, name, time.total)
        for side in (0, 1)
        for name, time in times(case.side(side)).items()
        if time.total >= 0.15 and time.peak >= 1
    ]
    unsure = [each for each in found if each[2] < 0.95]
    if not found:
        return None
    side, name, total = (unsure or found)[rng.integers(len(unsure or found))]
    horizon, percent = case.side(0).horizon, 100 * total
    prompt = (
        f"After {answer.sides[side].name}, how likely is it, in percent, that {name} happens within the "
        f"{horizon} steps? (a number; {POINTS_RIGHT} points more or less count as right)"
    )
    about = About(PERCENT, name, side, percent, percent - 40 if percent > 50 else percent + 40)
    return Question("likely", prompt, (), percent, POINTS_RIGHT, about, weak=not unsure)


def _risk(case: Case, rng: np.random.Generator) -> Question | None:
    """After which of the two actions an event is more likely, or comes later."""
    answer, fact, foil = case.answer(None), times(case.side(0)), times(case.side(1))
    names = (answer.fact.name, answer.foil.name if answer.foil is not None else "")
    horizon = case.side(0).horizon
    apart = [name for name in fact if abs(fact[name].total - foil[name].total) >= 0.1]
    if apart:
        name = apart[rng.integers(len(apart))]
        totals = fact[name].total, foil[name].total
        more = int(totals[1] > totals[0])
        prompt = f"After which of the two actions is {name} more likely within the {horizon} steps?"
        about = About(PERCENT, name, more, 100 * totals[more], _below(100 * totals[1 - more]))
        return _choice("risk", prompt, [*names, "equally likely"], names[more], about, rng)
    late = [
        name
        for name in fact
        if fact[name].clear
        and foil[name].clear
        and abs(fact[name].peak - foil[name].peak) >= 1
        and min(fact[name].total, foil[name].total) >= 0.8
    ]
    if not late:
        return None
    name = late[rng.integers(len(late))]
    peaks = fact[name].peak, foil[name].peak
    later = int(peaks[1] > peaks[0])
    prompt = f"After which of the two actions does {name} most likely come later?"
    about = About(STEP, name, 1 - later, peaks[1 - later], peaks[later] + 4)
    if peaks[later] + 4 >= horizon:
        about = About(STEP, name, later, peaks[later], peaks[1 - later] - 4)
    return _choice("risk", prompt, [*names, "at the same step"], names[later], about, rng)


def _below(percent: float) -> float:
    """A clearly smaller percentage; NaN if there is no room."""
    return percent / 3 if percent >= 9 else np.nan


def _worth(case: Case) -> tuple[Contrast, list[str]]:
    """Fact minus foil, and the rewarded outcomes that account for most of the difference."""
    answer = case.answer(None)
    assert answer.contrast is not None
    rewarded = [one.outcome for one in sorted(answer.facts, key=lambda one: -abs(one.gain or 0)) if one.gain]
    return answer.contrast, rewarded


def _flip(case: Case, rng: np.random.Generator) -> Question | None:
    """Which other reward changes which action is better."""
    contrast, rewarded = _worth(case)
    answer = case.answer(None)
    assert answer.foil is not None
    for outcome in rewarded:
        now, at = what_if.reward_of(contrast.fact.legend, outcome), what_if.overtaking(contrast, 0, outcome)
        column = contrast.fact.legend.names.index(outcome)
        certain = not contrast.drawn or what_if.sign_certain(contrast)[0, column]
        if at is None or not certain or not bool(contrast.settled[0]) or not 0.2 <= abs(at - now) <= 5000:
            continue
        names = answer.fact.name, answer.foil.name
        ahead, behind = names if contrast.expected_return[0, -1] > 0 else names[::-1]
        far = at - now
        values = [at + 0.5 * far, now + 0.5 * far, now + 0.75 * far, now - far]
        options = [f"{outcome} becomes worth {_plain(value)}" for value in values]
        if len(set(options)) < len(options):
            continue
        prompt = (
            f"Now {ahead} is worth more than {behind}. With the rest of the policy unchanged, which change "
            f"makes {behind} worth more than {ahead}?"
        )
        about = About(THRESHOLD, outcome, 0, at, now - 0.5 * far)
        question = _choice("flip", prompt, options, options[0], about, rng)
        return Question(**{**vars(question), "what_if": outcome})
    return None


def _reward(case: Case, rng: np.random.Generator) -> Question | None:
    """Which of four reward functions the agent has."""
    contrast, rewarded = _worth(case)
    for outcome in rewarded:
        if what_if.overtaking(contrast, 0, outcome) is None:
            continue
        functions = reward_functions(contrast.fact.legend)
        options = [_listed(each) for each in functions]
        now, false = functions[0][outcome], functions[1][outcome]
        prompt = "Which are the rewards of the agent, for each occurrence or each unit of an outcome?"
        question = _choice("reward", prompt, options, options[0], About(NOW, outcome, 0, now, false), rng)
        return Question(**{**vars(question), "what_if": outcome})
    return None


def reward_functions(legend: Legend) -> list[dict[str, float]]:
    """The true reward function and three others with a wrong reward for every outcome.

    They are the same for all questions about a world: otherwise the overlap of several questions' options
    would give the true one away. Outcomes of equal weight are changed alike, so that all look natural.
    """
    weights = {n: float(w) for n, w in zip(legend.names, legend.weights, strict=True) if w is not None}
    rng = np.random.default_rng(list("".join(weights).encode()))
    factors = {size: rng.permutation(WRONG).tolist() for size in sorted({abs(w) for w in weights.values()})}
    wrong = [{n: factors[abs(w)][i] * w for n, w in weights.items()} for i in range(len(WRONG))]
    return [weights, *wrong]


def _listed(weights: Mapping[str, float]) -> str:
    return ", ".join(f"{name}: {_plain(weight)}" for name, weight in weights.items())


def _plain(value: float) -> str:
    return f"{value:.4g}"


MAKERS: dict[str, Callable[[Case, np.random.Generator], Question | None]] = {
    "order": _order,
    "when": _when,
    "likely": _likely,
    "risk": _risk,
    "flip": _flip,
    "reward": _reward,
}
