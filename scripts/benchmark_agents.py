"""Measure how well networks explain, and how much they slow down a training.

python scripts/benchmark_agents.py                     all of it, in about half an hour
python scripts/benchmark_agents.py callback            some of it
python scripts/benchmark_agents.py real agents_folder=...  agents of other people: see scripts/real_agents.py
"""

import os
import subprocess
import sys
from collections.abc import Callable
from tempfile import TemporaryDirectory

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as on the command line; read when torch is imported

import numpy as np
from benchmark import Figures, measure, seconds
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from real_agents import real
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.base_class import BaseAlgorithm

import tpd
from sb3_ext import ExplainerCallback, explainer_for
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy
from tpd.envs import Environment
from tpd.evaluation.errors import evaluate
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.rollouts import MonteCarlo
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import build
from tpd.sources.collection import collect

STEPS, UPDATES = 500_000, 12_000
TRAININGS: dict[str, tuple[Callable[[], BaseAlgorithm], str, int]] = {
    "DQN on CartPole": (lambda: DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu"), "cart_pole", 30_000),
    "PPO on LunarLander": (
        lambda: PPO("MlpPolicy", "LunarLander-v3", seed=0, device="cpu"),
        "lunar_lander",
        30_720,
    ),
}


def forms() -> Figures:
    """FuelTaxi with a tenth of the paper's transitions: softmax over outcomes against regression on Q_h."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        cfg = compose("config", ["experiment=fuel_taxi_dqn", "policy=q_learning"])
        paper = compose("config", ["experiment=paper"]).evaluation.reference
    parts = build(cfg)
    parts.trainer.train()
    policy, outcomes = parts.trainer.policy, parts.outcomes
    assert isinstance(policy, DiscretePolicy)
    batches = list(
        collect(
            parts.env,
            policy,
            generator(0, "collection"),
            steps=STEPS,
            exploration=parts.training.exploration,
            num_envs=parts.training.num_envs,
        )
    )
    horizon = parts.explainer.predictor.horizon
    cases = ExactSolution(parts.env, policy, outcomes, horizon=horizon).cases(
        parts.evaluation.episodes, generator(0, "evaluation")
    )
    measured = {}
    for form in ("efo", "fhgvf"):
        cfg.explainer.form = form
        learner = instantiate(cfg.explainer, _convert_="all")(parts.env, policy, outcomes)
        for batch in batches:
            learner.update(batch)
        for _ in range(UPDATES):
            learner.learn()
        measured[form] = evaluate(Explainer(learner, policy, outcomes.legend), parts.env, cases)
    softmax, regression = measured["efo"], measured["fhgvf"]
    for k, event in enumerate(outcomes.legend.names):
        if event not in paper:
            continue
        for metric, limit in (("pi_mse", 1), ("foil_mse", 2)):
            error, other = getattr(softmax, metric)[k], getattr(regression, metric)[k]
            yield f"{event}: {metric}, softmax / paper (at most {limit})", error / paper[event][metric][0]
            yield f"{event}: {metric}, regression / softmax (above 1)", other / error


def callback() -> Figures:
    """Training with the callback at its defaults against training without it."""
    for name, (make, env, steps) in TRAININGS.items():

        def plain(make: Callable[[], BaseAlgorithm] = make, steps: int = steps) -> None:
            make().learn(steps)

        def watched(make: Callable[[], BaseAlgorithm] = make, env: str = env, steps: int = steps) -> None:
            model = make()
            model.learn(steps, callback=ExplainerCallback(explainer_for(model, f"env={env}")))

        make().learn(1000)
        yield f"{name}: times the training alone (at most 1.25)", seconds(watched) / seconds(plain)


def alongside() -> Figures:
    """Learning during training against learning after it: same transitions, updates and final policy."""
    for name, (make, env, steps) in TRAININGS.items():
        model = make()
        first, second = (explainer_for(model, f"env={env}") for _ in range(2))
        both = [ExplainerCallback(first), ExplainerCallback(second, when="after")]
        model.learn(steps, callback=[*both])
        environment = explained_environment(env)
        truth = MonteCarlo(
            environment,
            first.policy,
            first.predictor.outcomes,  # type: ignore[attr-defined]
            horizon=first.predictor.horizon,
            moments=200,
            rollouts=10,
        )
        cases = truth.cases(10, generator(0, "evaluation"))
        errors = [evaluate(explainer, environment, cases) for explainer in (first, second)]
        events = [first.legend.names.index(event) for event in first.legend.events]
        mean = [float(np.mean(error.pi_mse[events])) for error in errors]
        yield f"{name}: updates", float(first.predictor.updates)  # type: ignore[attr-defined]
        yield f"{name}: mean pi_mse of the events, after", mean[1]
        yield f"{name}: alongside / after (at most 1.5)", mean[0] / mean[1]


def asking() -> Figures:
    """CPU seconds of `import tpd`, and of asking a saved run, from command to plot."""
    model = DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu")
    quick = ["explainer=network", "explainer.fit_updates=10", "evaluation=none"]
    with TemporaryDirectory() as folder:
        tpd.Explainer(model, env="CartPole-v1").learn(1000, overrides=quick).save(f"{folder}/run")
        yield "import tpd (at most 0.1)", children("import tpd", folder) - children("pass", folder)
        words = ["run=run", "state=[0, 0, 0, 0]", "rollouts=0"]
        explain = children("from tpd.run.cli import explain; explain()", folder, *words)
        torch = children("import torch", folder)
        yield "tpd-explain (at most 3)", explain
        yield "import torch alone", torch
        yield "tpd-explain / import torch (at most 1.6)", explain / torch


def children(script: str, folder: str, *words: str) -> float:
    """CPU seconds of a process that runs the script; the smallest of three."""
    spent = []
    for _ in range(3):
        before = os.times()
        command = [sys.executable, "-c", script, *words]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
        after = os.times()
        spent.append(sum(after[2:4]) - sum(before[2:4]))
    return min(spent)


def explained_environment(name: str) -> Environment:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        environment: Environment = instantiate(compose("config", [f"env={name}"]).env, _convert_="all")
    return environment


if __name__ == "__main__":
    if sys.argv[1:2] == ["real"]:
        real(sys.argv[2:])
    else:
        measure((forms, callback, alongside, asking), sys.argv[1:])
