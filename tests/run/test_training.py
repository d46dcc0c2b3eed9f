"""Training: what learners are shown, and when."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from tests.support import Compose, small_mdp
from tests.support.learning import train
from tests.support.q_learning import q_learning
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy, Transitions
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.run.experiment import learn, run
from tpd.run.parts import build
from tpd.run.training import Training
from tpd.show.progress import ProgressBars
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.store import explainers
from tpd.store.saved_runs import EXPLAINER
from tpd.tracking.runs import Run


@pytest.mark.parametrize(
    ("alongside", "steps", "expected"), [(True, 0, 20_000), (False, 5_000, 5_000), (True, 5_000, 25_000)]
)
def test_alongside_and_after_only_decide_when_the_learner_is_called(
    alongside: bool, steps: int, expected: int
) -> None:
    env = small_mdp.environment()
    trainer = q_learning(env)
    training = Training(
        alongside=alongside, steps=steps, epsilon=0.2, num_envs=10, least_tried=False, restarts=0.0
    )
    seen: list[Transitions] = []
    train(training, env, trainer, generator(0, "collection"), learning=[seen.append])
    assert sum(map(len, seen)) == training.transitions(trainer) == expected


@pytest.mark.parametrize("training", ["after", "alongside"])
def test_both_ways_of_training_explain_the_final_policy(training: str, compose_config: Compose) -> None:
    overrides = [
        f"training={training}",
        "explainer=polynomial",
        "policy.explained_epsilon=0.1",
        "explainer.horizon=10",
    ]
    steps = ["training.steps=300000", "policy.steps=300000"]
    parts = build(compose_config("env=frozen_lake", *overrides, *steps))
    learned, policy = parts.explainer, parts.trainer.policy
    assert isinstance(policy, DiscretePolicy)
    solution = ExactSolution(parts.env, policy, parts.outcomes, horizon=10)
    truth = Explainer(solution, policy, parts.outcomes.legend)
    rng = generator(0, "collection")
    train(parts.training, parts.env, parts.trainer, rng, learning=[learned.predictor.update])  # type: ignore[attr-defined]
    start = np.array([0])
    error = (learned.explain(start) - truth.explain(start)).expected
    assert np.abs(error).max() < 0.1
    assert truth.explain(start).expected[0, 5:].max() > 0.5


def test_outcomes_that_need_info_are_learned_alongside() -> None:
    env = small_mdp.environment()
    outcomes = OutcomeSet([event("odd", lambda t: t.info["parity"], info_keys=["parity"])])
    seen: list[Transitions] = []
    q_learning(env, steps=500).train([seen.append], outcomes.info_keys)
    assert (outcomes.observe(seen[0]).outcome[:, 0] == small_mdp.odd(seen[0])).all()


def test_info_that_the_env_does_not_have_is_named() -> None:
    batches = collect(
        small_mdp.environment(),
        small_mdp.policy(),
        generator(0, "test"),
        steps=5,
        exploration=Exploration(0.0),
        num_envs=2,
        info_keys=["speed"],
    )
    with pytest.raises(KeyError, match=r"info\['speed'\].* has only.*parity"):
        next(batches)


@pytest.mark.parametrize(
    ("setting", "value"), [("steps", -1), ("steps", 0.5), ("epsilon", 1.5), ("num_envs", 0), ("restarts", -1)]
)
def test_settings_that_cannot_be_are_refused(setting: str, value: float) -> None:
    usual = {
        "alongside": False,
        "steps": 10,
        "epsilon": 0.1,
        "num_envs": 2,
        "least_tried": False,
        "restarts": 0.0,
    }
    with pytest.raises(ValueError, match=setting):
        Training(**(usual | {setting: value}))  # type: ignore[arg-type]


def test_the_figures_of_a_fit_are_logged_as_it_goes_on(compose_config: Compose) -> None:
    class Told(Run):
        def metrics(self, values: Mapping[str, float], step: int = 0) -> None:
            if "explainer/loss" in values:
                losses[step] = values["explainer/loss"]

    losses = dict[int, float]()
    function = "policy.function={_target_: policies_of_a_user.left, _partial_: true}"
    chosen = ["env=cart_pole", "policy=function", function, "explainer=network", "training=agent"]
    small = ["explainer.hidden=[8]", "training.steps=500", "explainer.fit_updates=40", "evaluation=none"]
    learn(build(compose_config(*chosen, *small)), Told(), ProgressBars(False))
    assert list(losses) == list(range(4, 44, 4))
    assert np.mean(list(losses.values())[-3:]) < losses[4]


def test_what_was_learned_is_saved_before_it_is_judged(
    compose_config: Compose, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = ["policy.steps=2000", "training.steps=2000", "evaluation.curve_points=0"]
    parts = build(compose_config(*small, "tracking=none"))
    monkeypatch.setattr("tpd.run.experiment.judge", lambda *_: pytest.fail("judging failed"))
    with pytest.raises(pytest.fail.Exception, match="judging failed"):
        run(parts, tmp_path, Run(), progress=False)
    state, action = np.array([100]), np.array([0])
    saved = explainers.load(tmp_path / EXPLAINER).explain(state, action)
    np.testing.assert_allclose(saved.expected, parts.explainer.explain(state, action).expected, atol=1e-6)
