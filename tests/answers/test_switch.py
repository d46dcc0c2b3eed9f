"""What would switch the plan: a planted cause is found with its probability, and noise gives none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.support import crossing
from tpd.answers.sentences.switch import switch_in_words
from tpd.answers.switch import Switch, switch_in_rollouts, switch_in_table
from tpd.core.explanation import Explanation
from tpd.core.outcomes import Legend
from tpd.core.types import BoolArray, IntArray
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.simulation import Simulator
from tpd.predictors.tabular_dynamics import TabularDynamics
from tpd.sources.collection import play
from tpd.sources.moments import Moment

HORIZON = 8


def exactly(**world: Any) -> Switch | None:
    """At the pier, by the environment's own dynamics."""
    env, policy, outcomes = crossing.environment(**world), crossing.sailor(), crossing.outcomes()
    assert env.model is not None
    solution = ExactSolution(env, policy, outcomes, horizon=HORIZON)
    explanation = Explainer(solution, policy, outcomes.legend).explain(np.array([0]), np.array([0]))
    return switch_in_table(explanation, TabularDynamics.known(env.model, outcomes), policy)


def rolled_out(rollouts: int = 300, **world: Any) -> Explanation:
    simulator = Simulator(
        crossing.environment(**world), crossing.sailor(), crossing.outcomes(), horizon=HORIZON
    )
    return simulator.explain(Moment(0, np.array([]), np.array(0)), np.array([0]), rollouts)


def test_a_planted_cause_is_found_with_its_exact_probability() -> None:
    found = exactly()
    assert found is not None
    assert (found.condition, found.happens, found.steps) == ("storm", True, 1)
    assert found.probability == pytest.approx(crossing.STORM)
    assert {found.decisive.event} < {"arrives", "sinks"}
    chances = {"arrives": (crossing.ARRIVES_AFTER_STORM, crossing.ARRIVES)}
    chances["sinks"] = (1 - crossing.ARRIVES_AFTER_STORM, 1 - crossing.ARRIVES)
    for branches in (found.decisive, found.response):
        assert branches is not None
        assert (branches.if_met, branches.otherwise) == pytest.approx(chances[branches.event])
        assert branches.if_met_band == (branches.if_met, branches.if_met)


def test_rollouts_find_it_too_with_bands_that_hold_the_truth() -> None:
    found = switch_in_rollouts(rolled_out())
    assert found is not None
    assert (found.condition, found.happens, found.steps) == ("storm", True, 1)
    assert found.probability == pytest.approx(crossing.STORM, abs=0.07)
    truth = crossing.ARRIVES_AFTER_STORM, crossing.ARRIVES
    truth = truth if found.decisive.event == "arrives" else (1 - truth[0], 1 - truth[1])
    for chance, (low, high) in zip(
        truth, (found.decisive.if_met_band, found.decisive.otherwise_band), strict=True
    ):
        assert low <= chance <= high


def test_what_is_rarer_is_the_condition() -> None:
    found = exactly(storm=0.9)
    assert found is not None
    assert (found.condition, found.happens) == ("storm", False)
    assert found.probability == pytest.approx(0.1)
    said = switch_in_words(found, "go")
    assert said.startswith("After go, if storm does not happen at the first step (10 %), ")


def test_the_sentence_has_the_numbers() -> None:
    found = exactly()
    assert found is not None
    assert "After go, if storm happens at the first step (20 %), " in switch_in_words(found, "go")
    assert "arrives" in switch_in_words(found, "go")
    assert "25 % likely (otherwise 95 %)" in switch_in_words(found, "go")
    assert switch_in_words(found, "go", ["storm"]).startswith(
        "After go, if it chooses storm at the first step"
    )


def test_counted_dynamics_need_enough_visits() -> None:
    policy, outcomes, env = crossing.sailor(), crossing.outcomes(), crossing.environment()
    found = dict[int, Switch | None]()
    for episodes in (12, 3000):
        learner = ReplayedFHTD(env, policy, outcomes, horizon=HORIZON)
        learner.update(play(env, policy, np.random.default_rng(0), episodes=episodes).transitions)
        explanation = Explainer(learner, policy, outcomes.legend).explain(np.array([0]), np.array([0]))
        edges = learner.table().edges
        assert edges is not None
        found[episodes] = switch_in_table(explanation, TabularDynamics.counted(edges, 2), policy)
    assert found[12] is None
    many = found[3000]
    assert many is not None
    assert many.condition == "storm"
    assert many.probability == pytest.approx(crossing.STORM, abs=0.03)
    assert many.decisive.if_met_band[0] < many.decisive.if_met < many.decisive.if_met_band[1]


def test_without_a_cause_there_is_none() -> None:
    assert exactly(matters=False) is None
    assert switch_in_rollouts(rolled_out(matters=False)) is None


def test_what_is_certain_switches_by_nothing() -> None:
    assert exactly(storm=0.0) is None
    certain = of_rollouts(np.ones((1, 12, 3), dtype=np.bool_), np.array([20]))
    assert switch_in_rollouts(replace(certain, support=np.array([np.inf]))) is None


def noise(rng: np.random.Generator, ends: IntArray, events: int = 8) -> BoolArray:
    """[rollout, horizon, event]: every event at every step with its own chance, until a random end."""
    chances = rng.uniform(0.05, 0.6, events)
    seen = rng.random((len(ends), 12, events)) < chances
    steps = np.arange(12)[None]
    seen &= (steps <= ends[:, None])[..., None]
    seen[..., 0] = steps == ends[:, None]
    return np.asarray(seen)


def of_rollouts(seen: BoolArray, ends: IntArray) -> Explanation:
    names = tuple(f"e{k}" for k in range(seen.shape[2]))
    return Explanation(
        observations=np.zeros((1, 3)),
        actions=np.zeros(1, int),
        expected=seen.mean(axis=0)[None],
        running=(ends[:, None] > np.arange(12)).mean(axis=0)[None],
        support=np.array([len(seen)]),
        legend=Legend(names, (None,) * len(names), (), None, names),
        discount=1.0,
        rollouts=seen[:, None].astype(np.float32),
    )


def test_noise_gives_none_in_99_of_100_seeds() -> None:
    found = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        ends = np.where(rng.random(203) < 0.5, rng.integers(6, 12, 203), 20)
        found += switch_in_rollouts(of_rollouts(noise(rng, ends), ends)) is not None
    assert found <= 1


def test_a_cause_among_the_noise_is_found() -> None:
    """The same trajectories, in which one event of the second step makes the end five times as likely."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cause = rng.random(203) < 0.3
        ends = np.where(rng.random(203) < np.where(cause, 0.9, 0.18), rng.integers(6, 12, 203), 20)
        seen = noise(rng, ends)
        seen[:, :, 3] = False
        seen[:, 1, 3] = cause
        found = switch_in_rollouts(of_rollouts(seen, ends))
        assert found is not None
        assert (found.condition, found.steps, found.decisive.event) == ("e3", 2, "e0")
        assert found.probability == pytest.approx(cause.mean())


def test_what_ends_the_episode_early_is_no_condition() -> None:
    """An end within the first steps leaves no time for other events, which explains nothing."""
    rng = np.random.default_rng(0)
    ends = np.where(rng.random(400) < 0.5, 0, 20)
    assert switch_in_rollouts(of_rollouts(noise(rng, ends), ends)) is None
