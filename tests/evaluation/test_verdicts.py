"""Verdicts: what is learned is found to be, what is not is not, and too few episodes tell nothing."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from tests.support import small_mdp
from tpd.core.outcomes import Outcome, OutcomeSet, event
from tpd.core.types import Array, Episodes, FloatArray, Transitions, concatenate
from tpd.core.verdicts import Verdict
from tpd.evaluation.budget import Budget
from tpd.evaluation.forecasts import ForecastSkill, by_steps, forecast_skill, verdicts
from tpd.evaluation.fresh_episodes import judge_forecasts
from tpd.policies.function import FunctionPolicy
from tpd.policies.stored import AbsentPolicy
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.store.explanations import load_explanation, save_explanation

HORIZON, LONGEST = 12, 20
LEARNED, NOT_LEARNED, TOO_RARE = Verdict.LEARNED, Verdict.NOT_LEARNED, Verdict.TOO_RARE


@dataclass(frozen=True)
class Countdown:
    """Forecasts of a count that falls by one each step until it is 0: [state, horizon, outcome]."""

    expected: FloatArray
    tie: ClassVar[float] = 0.0

    @property
    def horizon(self) -> int:
        return int(self.expected.shape[1])

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        return np.asarray(self.expected[observations])

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.ones(len(actions))


def outcomes() -> OutcomeSet:
    """The goal ends the episode; it storms where it says so; half-way is when the count passes 5."""
    return OutcomeSet(
        [
            event("goal", lambda t: t.next_observation == 0, 10.0),
            event("half-way", lambda t: t.next_observation == 5, 0.0),
            event("storm", lambda t: t.info["storm"], 0.0, info_keys=["storm"]),
            Outcome("count", lambda t: t.next_observation / LONGEST, 0, 1, 0.0),
            Outcome("time", lambda t: np.ones(len(t)), 0, 1, 0.0),
        ],
        accounts_for_reward=True,
        first=["half-way"],
    )


def counted(storms: int = 5, episodes: int = 80) -> Episodes:
    """Episodes from random counts down to 0, the first few of which have a storm in their first step."""
    rng = np.random.default_rng(0)
    parts = []
    for number, start in enumerate(rng.integers(2, LONGEST, episodes)):
        path = np.arange(start, -1, -1)
        ends = path[1:] == 0
        storm = (np.arange(start) == 0) & (number < storms)
        parts.append(
            Transitions(
                path[:-1],
                np.zeros(start, dtype=int),
                path[1:],
                10.0 * ends,
                ends,
                np.zeros(start, dtype=bool),
                {"storm": storm},
                own=np.ones(start, dtype=bool),
            )
        )
    begins = np.cumsum([0, *(len(part) for part in parts[:-1])])
    return Episodes(concatenate(parts), begins)


def truth() -> FloatArray:
    """[state, horizon, outcome]: what happens after each count."""
    width = outcomes().width
    expected = np.zeros((LONGEST + 1, HORIZON, width))
    for state in range(1, LONGEST + 1):
        for h in range(min(state, HORIZON)):
            after = state - h - 1
            row = [after == 0, after == 5, 0, after / LONGEST, 1, after == 5, after == 0]
            expected[state, h] = row
    return expected


def explainer(expected: FloatArray) -> Explainer:
    policy = FunctionPolicy(lambda observations: np.zeros(len(observations), dtype=int), 0.9, ACTIONS)
    return Explainer(Countdown(expected), policy, outcomes().legend)


ACTIONS = small_mdp.environment().action_space


def judged(expected: FloatArray, **settings: int) -> ForecastSkill:
    return forecast_skill(explainer(expected), outcomes(), counted(**settings))


def verdict(found: ForecastSkill, name: str, steps: str) -> Verdict:
    table = found.by if steps.startswith("by") else found.at
    return Verdict(int(table.verdict[table.ranges.index(steps), found.names.index(name)]))


LAST = f"by {HORIZON - 1}"
TOLD = ("goal", "half-way", "first half-way", "count", "terminated", "return")


@pytest.mark.parametrize("steps", ["1", "2-5", "6-11", "all", "by 2", "by 6", LAST])
@pytest.mark.parametrize("name", TOLD)
def test_perfect_forecasts_are_learned(name: str, steps: str) -> None:
    assert verdict(judged(truth()), name, steps) == LEARNED


def scrambled(expected: FloatArray) -> FloatArray:
    return np.random.default_rng(1).permutation(expected)


def constant(expected: FloatArray) -> FloatArray:
    return np.broadcast_to(expected[1:].mean(axis=0), expected.shape)


def far_too_late(expected: FloatArray) -> FloatArray:
    return np.roll(expected, 6, axis=0)


@pytest.mark.parametrize("corrupted", [scrambled, constant, far_too_late])
@pytest.mark.parametrize("steps", ["all", "by 2", "by 6", LAST])
@pytest.mark.parametrize("name", [name for name in TOLD if name != "count"])
def test_corrupted_and_constant_forecasts_are_not_learned(
    name: str, steps: str, corrupted: Callable[[FloatArray], FloatArray]
) -> None:
    assert verdict(judged(corrupted(truth())), name, steps) == NOT_LEARNED


RARE = [(0, TOO_RARE), (19, TOO_RARE), (20, NOT_LEARNED), (70, TOO_RARE)]


@pytest.mark.parametrize(("storms", "expected"), RARE)
def test_an_event_of_few_episodes_or_lacking_in_few_is_too_rare(storms: int, expected: Verdict) -> None:
    """In episodes of one step, of which there are 80."""
    begun, count = counted(storms), 80
    first = replace(
        begun.transitions[begun.begins],
        terminated=np.ones(count, dtype=bool),
        next_observation=np.zeros(count, dtype=int),
        reward=np.full(count, 10.0),
    )
    found = forecast_skill(explainer(truth()), outcomes(), Episodes(first, np.arange(count)))
    assert verdict(found, "storm", "0") == expected


def test_few_episodes_tell_nothing() -> None:
    found = judged(truth(), episodes=19)
    assert (found.by.verdict == TOO_RARE).all()


def test_what_is_always_the_same_is_learned_if_it_is_said_to_be() -> None:
    assert verdict(judged(truth()), "time", "0") == LEARNED
    off = truth()
    off[..., 4] *= 0.8
    assert verdict(judged(off), "time", "0") == NOT_LEARNED


def test_little_skill_is_not_learned() -> None:
    """Mostly the base rate: some skill, but its lower bound is not above 0.1."""
    base_rate = judged(truth()).by_horizon.base_rate[:, : outcomes().width]
    found = judged(0.04 * truth() + 0.96 * base_rate)
    k = found.names.index("goal")
    assert 0 < found.by.scores.skill[-1, k] < 0.1
    assert verdict(found, "goal", LAST) == NOT_LEARNED
    assert (found.by.skill_bound <= found.by.scores.skill + 1e-9)[~np.isnan(found.by.skill_bound)].all()


def test_sums_are_judged_by_whether_it_has_happened() -> None:
    found = judged(truth())
    k = found.names.index("goal")
    starts = counted().transitions.observation
    for row, step in enumerate(by_steps(HORIZON)):
        assert found.by.scores.base_rate[row, k] == pytest.approx(np.mean(starts <= step + 1))


# Foils


def test_foils_are_windows_that_the_policy_did_not_begin_and_then_follows() -> None:
    episodes = counted()
    own = np.ones(len(episodes.transitions), dtype=bool)
    begin = int(episodes.begins[np.diff(episodes.begins).argmax()])
    own[[begin, begin + 3]] = False
    marked = Episodes(replace(episodes.transitions, own=own), episodes.begins)
    found = forecast_skill(explainer(truth()), outcomes(), marked, foils=True)
    # the first foil is followed for 3 steps, the second one to the end of its episode and beyond
    assert found.by_horizon.windows.tolist() == [2, 2, 2, *[1] * (HORIZON - 3)]
    unmarked = Episodes(replace(episodes.transitions, own=None), episodes.begins)
    with pytest.raises(ValueError, match="do not store which"):
        forecast_skill(explainer(truth()), outcomes(), unmarked, foils=True)


def test_where_there_is_one_action_there_are_no_foils() -> None:
    rng = np.random.default_rng(3)
    env = small_mdp.environment()
    policy = TabularPolicy(np.eye(3)[np.zeros(6, dtype=int)], 0.9)
    single = ExactSolution(env, policy, small_mdp.outcomes(), horizon=6)
    one = Explainer(single, policy, small_mdp.outcomes().legend)
    with pytest.MonkeyPatch.context() as patch:
        only = np.eye(3, dtype=bool)[:1]
        patch.setattr(type(env), "mask", lambda self, states: only.repeat(len(states), axis=0))
        assert judge_forecasts(one, env, small_mdp.outcomes(), rng, 30, Budget(1000.0)).foil is None


# In explanations


def with_verdicts(expected: FloatArray) -> Explainer:
    one = explainer(expected)
    one.verdicts = verdicts(judged(truth()), judged(scrambled(truth())), outcomes().legend)
    return one


def test_pairs_have_the_verdict_of_the_policys_action_or_of_a_foil() -> None:
    one = with_verdicts(truth())
    states, actions = np.array([6, 6]), np.array([0, 1])
    explanation = one.explain(states, actions)
    goal = outcomes().legend.names.index("goal")
    assert explanation.told.at[0, 1:, goal].all()
    assert not explanation.told.at[1, 1:, goal].any()
    assert explanation.told.returns[0].all()
    assert not explanation.told.returns[1].any()
    assert explanation.told.ended[0].all()
    assert not explanation[1:].told.by[0, :, goal].any()
    absent = Explainer(one.predictor, AbsentPolicy(0.9, "a test"), one.legend, one.verdicts)
    assert not absent.explain(states, actions).told.by[:, :, goal].any()
    assert explainer(truth()).explain(states, actions).verdicts is None


def test_every_step_has_the_verdict_of_its_range_and_sums_that_of_the_next_step_judged() -> None:
    policy = judged(truth())
    found = verdicts(policy, None, outcomes().legend)
    storm = outcomes().legend.names.index("storm")
    assert (found.at[0, :, storm] == TOO_RARE).all()
    assert (found.at[1] == Verdict.NOT_JUDGED).all()
    changed = policy.by.verdict.copy()
    changed[1] = NOT_LEARNED
    between = verdicts(replace(policy, by=replace(policy.by, verdict=changed)), None, outcomes().legend)
    assert (between.by[0, :, 0] == NOT_LEARNED).tolist() == [3 <= h <= 6 for h in range(HORIZON)]


def test_verdicts_are_stored_with_explanations(tmp_path: Path) -> None:
    explanation = with_verdicts(truth()).explain(np.array([6, 6]), np.array([0, 1]))
    save_explanation(explanation, tmp_path / "one.npz")
    loaded = load_explanation(tmp_path / "one.npz")
    assert loaded.verdicts is not None
    assert explanation.verdicts is not None
    for name in ("at", "by", "returns"):
        np.testing.assert_array_equal(getattr(loaded.verdicts, name), getattr(explanation.verdicts, name))


# Budget


def test_a_budget_that_runs_out_says_what_was_left_out() -> None:
    worked = list[int]()
    plenty = Budget(1000.0)
    plenty.parts("things", 10, 1.0, worked.append)
    assert worked == [1, 9]
    assert plenty.remark == ""
    none = Budget(0.0)
    none.parts("things", 10, 1.0, worked.append)
    assert worked == [1, 9, 1]
    assert (
        none.remark == "evaluation.seconds=0 was too short: only 1 of 10 things; increase it to evaluate all"
    )
