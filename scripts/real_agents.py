"""Measure explanations of published agents: `python scripts/benchmark_agents.py real agents_folder=...`

Every agent and seed writes a JSON file to outputs/benchmark_agents, and is skipped if that exists.
`agents=[ppo-CartPole-v1]` selects agents, `seeds=1` the number of seeds, `steps=200000` the transitions,
`networks=[]` leaves out the networks with other targets;
`overrides=[explainer.hidden=[64]] out=outputs/small` measures other settings, in another folder.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from scipy.stats import rankdata

from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.outcomes import FIRST
from tpd.core.seeding import generator
from tpd.core.types import BoolArray, Episodes, FloatArray, IntArray, Predictor, Transitions
from tpd.core.verdicts import Verdict
from tpd.evaluation.calibration import calibrate
from tpd.evaluation.coverage import FORECASTS, band_scores
from tpd.evaluation.forecasts import ForecastSkill, forecast_skill
from tpd.evaluation.windows import Course
from tpd.predictors.explainer import Explainer
from tpd.predictors.mixture.learner import MixtureLearner
from tpd.predictors.model.learner import LearnedModel
from tpd.predictors.network.learner import NetworkFHTD
from tpd.predictors.rollouts import MonteCarlo, SampledCases
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import Parts, build
from tpd.sources.collection import collect, play

AGENTS = {
    "qrdqn-LunarLander-v2": "lunar_lander",
    "ppo-LunarLander-v2": "lunar_lander",
    "dqn-LunarLander-v2": "lunar_lander",
    "ppo-BipedalWalker-v3": "bipedal_walker",
    "a2c-Acrobot-v1": "acrobot",
    "ppo-CartPole-v1": "cart_pole",
    "dqn-MountainCar-v0": "mountain_car",
}
DECISIVE = {
    "lunar_lander": ("crash", "landing"),
    "bipedal_walker": ("falls",),
    "acrobot": ("goal",),
    "cart_pole": ("falls",),
    "mountain_car": ("goal",),
}
NETWORKS = {
    "one-step": ["explainer.window=1"],
    "no bootstrap": ["explainer.bootstrap=false"],
}
"""Other networks than the mixture's, which has window targets with bootstrapping."""
BY = (5, 15, 29)
EPISODES, PAIRS = 250, 2000
MOMENTS, OTHER_MOMENTS, ROLLOUTS = 400, 120, 10
ROUNDING = 1e-5
ENOUGH_MOMENTS = 20  # moments with the forecast, or with the event, that are needed to judge its bands
Figures = dict[str, float]


@dataclass(frozen=True)
class Settings:
    """The command-line settings."""

    agents_folder: str
    agents: Sequence[str] = tuple(AGENTS)
    seeds: int = 3
    steps: int = 200_000
    networks: Sequence[str] = tuple(NETWORKS)
    overrides: Sequence[str] = ()
    out: str = "outputs/benchmark_agents"

    @classmethod
    def typed(cls, words: Sequence[str]) -> "Settings":
        """Parse `name=value`; unknown names are refused."""
        given: dict[str, Any] = OmegaConf.to_container(OmegaConf.from_dotlist(list(words)))  # type: ignore[assignment]
        unknown = {*given} - set(cls.__annotations__)
        if unknown or "agents_folder" not in given:
            sys.exit(f"real takes {', '.join(f'{name}=...' for name in cls.__annotations__)}; got {words}")
        settings = cls(**given)
        missing = [name for name in settings.agents if name not in AGENTS]
        if missing:
            sys.exit(f"agents: there is no {missing[0]!r}; there are {', '.join(AGENTS)}")
        return settings


@dataclass(frozen=True)
class Judges:
    """The truth that every predictor of one agent is compared with."""

    cases: SampledCases
    """By rollouts from forks: the policy's action and a foil, at moments of its episodes."""
    others: SampledCases
    """At other moments, for calibrating bands."""
    before_ends: SampledCases | None
    """At the last steps before a termination, selected by their outcome; None if no episode terminates."""
    course: Course
    fresh: Episodes
    steps: IntArray
    """[window]: the steps of fresh episodes that are forecast"""
    decisive: tuple[str, ...]
    """The events that decide an episode."""


def real(words: Sequence[str]) -> None:
    """Measure what is missing, and print the means over the seeds."""
    settings = Settings.typed(words)
    for agent in settings.agents:
        found = [measured(settings, agent, seed) for seed in range(settings.seeds)]
        report(agent, found)


def measured(settings: Settings, agent: str, seed: int) -> dict[str, Figures]:
    """The figures of each predictor, from the file of this agent and seed, or measured now."""
    path = Path(settings.out) / f"{agent}-{settings.steps}-{seed}.json"
    if not path.exists():
        figures = measure_agent(settings, agent, seed)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2))
    stored: dict[str, Figures] = json.loads(path.read_text())
    return stored


def measure_agent(settings: Settings, agent: str, seed: int) -> dict[str, Figures]:
    """One agent, one seed: all predictors learn from the same transitions."""
    parts = made(settings, agent, seed)
    rng = generator(seed, "collection")
    exploration, num_envs = parts.training.exploration, parts.training.num_envs
    batches = list(
        collect(
            parts.env,
            parts.trainer.policy,
            rng,
            steps=settings.steps,
            exploration=exploration,
            num_envs=num_envs,
        )
    )
    judges = judging(parts, seed, DECISIVE[AGENTS[agent]])
    learners: dict[str, Any] = {}
    found = {"constant": constant(parts, judges)}
    auto = made(settings, agent, seed, "explainer=auto").explainer.predictor
    assert isinstance(auto, MixtureLearner)
    for name in settings.networks:
        learners[name] = made(settings, agent, seed, "explainer=network", *NETWORKS[name]).explainer.predictor
    learners |= {"window": auto.network, "model": auto.model}
    for name, learner in learners.items():
        found[name] = {"seconds": seconds(lambda: taught(learner, batches))}  # noqa: B023
    learners["auto"] = auto
    found["auto"] = {"seconds": seconds(auto.weigh)}
    found["auto"]["seconds"] += found["window"]["seconds"] + found["model"]["seconds"]
    found["auto"] |= {name: value for name, value in auto.metrics().items() if name.startswith("mixture/")}
    for name, learner in learners.items():
        found[name] |= judged(parts, learner, judges)
        print(f"{agent}, seed {seed}: {name} took {found[name]['seconds']:.0f} s of CPU", flush=True)
    return found


def constant(parts: Parts, judges: Judges) -> Figures:
    """The errors of a constant forecast: the mean at other moments."""
    names = parts.outcomes.legend.names
    events = [names.index(event) for event in parts.outcomes.legend.events]
    figures = Figures()
    for whose, own in (("policy", True), ("foil", False)):
        true, others = (side.expected[side.own == own][..., events] for side in (judges.cases, judges.others))
        figures[f"{whose} mse"] = float(1e4 * ((true - others.mean(axis=0)) ** 2).mean())
    return figures


def made(settings: Settings, agent: str, seed: int, *overrides: str) -> Parts:
    """The parts of a run of this agent."""
    zipped = Path(settings.agents_folder).expanduser() / f"{agent}.zip"
    named = [f"experiment={AGENTS[agent]}", f"policy.path={zipped}", f"seed={seed}"]
    statistics = zipped.with_suffix(".vecnormalize.pkl")
    if statistics.exists():
        named.append(f"policy.vec_normalize={statistics}")
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return build(compose("config", [*named, *overrides, *settings.overrides]))


def judging(parts: Parts, seed: int, decisive: tuple[str, ...]) -> Judges:
    """Rollouts at moments, and fresh episodes."""
    policy, horizon = parts.trainer.policy, parts.explainer.predictor.horizon
    assert parts.evaluation.truth is not None
    truth = parts.evaluation.truth(parts.env, policy, parts.outcomes, horizon=horizon)
    assert isinstance(truth, MonteCarlo)
    truth.moments, truth.rollouts = MOMENTS, ROLLOUTS
    cases = truth.cases(EPISODES // 2, generator(seed, "evaluation"))
    truth.moments = OTHER_MOMENTS
    others = truth.cases(EPISODES // 2, generator(seed, "calibration"))
    truth.moments = OTHER_MOMENTS // 2
    try:
        before_ends = truth.cases(EPISODES // 2, generator(seed, "before ends"), before_ends=True)
    except ValueError:  # no episode terminates
        before_ends = None
    fresh = play(parts.env, policy, generator(seed, "verification"), episodes=EPISODES)
    course = Course(parts.outcomes, fresh)
    spread = np.linspace(0, len(course.steps) - 1, min(PAIRS, len(course.steps)))
    return Judges(cases, others, before_ends, course, fresh, course.steps[spread.astype(np.int64)], decisive)


def seconds(work: Callable[[], object]) -> float:
    """CPU seconds."""
    start = time.process_time()
    work()
    return time.process_time() - start


def taught(learner: NetworkFHTD | LearnedModel, batches: Sequence[Transitions]) -> None:
    for batch in batches:
        learner.update(batch)
    learner.fit()


def judged(parts: Parts, predictor: Predictor, judges: Judges) -> Figures:
    """All figures of one predictor."""
    cases, names = judges.cases, parts.outcomes.legend.names
    explainer = Explainer(predictor, parts.trainer.policy, parts.outcomes.legend)
    predicted = explainer.predict(cases.observations, cases.actions)[..., :-1]
    true = cases.expected[..., : predicted.shape[2]]
    events = [names.index(event) for event in parts.outcomes.legend.events]
    squares = 1e4 * ((predicted - true) ** 2)[..., events]
    assert cases.standard_error is not None
    noise = 1e4 * (cases.standard_error[..., : predicted.shape[2]] ** 2)[..., events]
    figures = {
        "policy mse": float(squares[cases.own].mean()),
        "foil mse": float(squares[~cases.own].mean()),
        "policy mse of the rollouts alone": float(noise[cases.own].mean()),
        "foil mse of the rollouts alone": float(noise[~cases.own].mean()),
        "policy mse without that noise": float((squares - noise)[cases.own].mean()),
        "foil mse without that noise": float((squares - noise)[~cases.own].mean()),
        "cells out of order": float(out_of_order(predicted, names)),
    }
    pairs = judges.fresh.transitions[judges.steps]
    forecast = explainer.predict(pairs.observation, pairs.action)[..., :-1]
    figures["cells out of order"] += out_of_order(forecast, names)
    for event in judges.decisive:
        column = names.index(FIRST + event)
        by, happened = (np.cumsum(each[..., column], axis=1) for each in (predicted, true))
        figures |= {f"{event}: {name}": value for name, value in effect(by, happened, cases).items()}
        figures[f"{event}: AUC by {BY[-1]}"] = auc_of(forecast[:, : BY[-1] + 1, column], column, judges)
    if judges.before_ends is not None:
        ends = judges.before_ends
        late = explainer.predict(ends.observations, ends.actions)
        for event in judges.decisive:
            column = names.index(FIRST + event)
            by, happened = (np.cumsum(each[..., column], axis=1) for each in (late, ends.expected))
            near = {"mse by 29": float(np.mean((by - happened)[ends.own, -1] ** 2))}
            near |= effect(by, happened, ends)
            figures |= {f"{event}: {name} within 30 steps of an end": value for name, value in near.items()}
    found = forecast_skill(explainer, parts.outcomes, judges.fresh)
    return figures | verdicts(found, judges) | bands(explainer, found, judges)


def verdicts(found: ForecastSkill, judges: Judges) -> Figures:
    """Brier skill of the decisive events by a few steps, and whether they are learned (1 or 0)."""
    figures = Figures()
    for event in judges.decisive:
        column = found.names.index(FIRST + event)
        for row, steps in enumerate(found.by.ranges):
            figures[f"{event}: skill {steps}"] = float(found.by.scores.skill[row, column])
            figures[f"{event}: learned {steps}"] = float(found.by.verdict[row, column] == Verdict.LEARNED)
    return figures


def bands(explainer: Explainer, found: ForecastSkill, judges: Judges) -> Figures:
    """Coverage of event bands by forecast probability, and their value.

    Events of which nothing is learned have no bands in answers, and are not compared with the base rate.
    """
    calibrate(explainer, judges.others, generator(0, "calibration"))
    scores = band_scores(explainer, judges.cases)
    if scores is None:
        return {}
    figures = Figures()
    for number, forecasts in enumerate(FORECASTS):
        enough = scores.moments[:, number] >= ENOUGH_MOMENTS
        covered = scores.covered[enough, number]
        figures[f"least covered, {forecasts}"] = float(covered.min()) if enough.any() else np.nan
        for event in judges.decisive:
            share = scores.covered[scores.names.index(FIRST + event), number]
            figures[f"{event}: covered, {forecasts}"] = float(share)
    learned = [(verdict == Verdict.LEARNED).any(axis=0) for verdict in (found.at.verdict, found.by.verdict)]
    happened = judges.cases.expected.any(axis=1).sum(axis=0)
    worse = [
        (name, score / base)
        for name, score, base in zip(scores.names, scores.score, scores.base_score, strict=True)
        if score > base
        and (learned[0] | learned[1])[found.names.index(name)]
        and happened[explainer.legend.names.index(name)] >= ENOUGH_MOMENTS
    ]
    figures |= {f"{name}: interval score / the constant band's": float(ratio) for name, ratio in worse}
    figures["events with a band worse than the constant band"] = float(len(worse))
    return figures | told_effects(explainer, judges)


def told_effects(explainer: Explainer, judges: Judges) -> Figures:
    """How often the band of a foil's effect on a decisive event excludes 0, and how often that is wrong."""
    cases, names = judges.cases, explainer.legend.names
    foils = np.flatnonzero(~cases.own)  # each follows the policy's own action
    sides = [
        explainer.explain(cases.observations[rows], cases.actions[rows], draws=ENOUGH_DRAWS)
        for rows in (foils, foils - 1)
    ]
    drawn = np.sort(sides[0].samples.sum(axis=2) - sides[1].samples.sum(axis=2), axis=0)
    low, high = drawn[2], drawn[-3]  # of 59: 90 %
    figures = Figures()
    for event in judges.decisive:
        column = names.index(FIRST + event)
        by = cases.expected[..., column].sum(axis=1)
        forked, least, most = by[foils] - by[foils - 1], low[:, column], high[:, column]
        figures[f"{event}: effects told"] = float(((least > 0) | (most < 0)).sum())
        wrong = ((least > 0) & (forked <= 0)) | ((most < 0) & (forked >= 0))
        figures[f"{event}: effects told wrongly"] = float(wrong.sum())
    return figures


def out_of_order(expected: FloatArray, names: Sequence[str]) -> int:
    """Number of cells that violate F_h <= P(at h) <= P(by h) <= 1."""
    wrong = 0
    for column, name in enumerate(names):
        if name.startswith(FIRST):
            first = expected[..., column].astype(np.float64)
            by, event = np.cumsum(first, axis=1), name.removeprefix(FIRST)
            at = expected[..., names.index(event)] if event in names else first
            wrong += int(((first > at + ROUNDING) | (at > by + ROUNDING) | (by > 1 + ROUNDING)).sum())
    return wrong


def effect(predicted: FloatArray, true: FloatArray, cases: SampledCases) -> Figures:
    """Errors of the foil's effect, and of predicting no effect, from [case, horizon] by each step."""
    foils = np.flatnonzero(~cases.own)  # each follows the policy's own action
    learned, forked = (each[foils] - each[foils - 1] for each in (predicted, true))
    figures = {"moments with an effect": float(np.count_nonzero(forked.any(axis=1)))}
    for steps, name in ((slice(-1, None), "by 29"), (slice(None), "by each step")):
        error = 1e4 * ((learned - forked)[:, steps] ** 2).mean(axis=1)
        none = 1e4 * (forked[:, steps] ** 2).mean(axis=1)
        figures |= {
            f"effect mse {name}": float(error.mean()),
            f"no effect mse {name}": float(none.mean()),
            f"effect mse {name}, standard error of the difference": float(
                np.std(error - none) / np.sqrt(len(none))
            ),
        }
    return figures


def auc_of(first: FloatArray, column: int, judges: Judges) -> float:
    """The AUC of an event by the last step, from its first occurrences [window, horizon]."""
    happened, known = np.zeros(len(judges.steps)), np.ones(len(judges.steps), dtype=np.bool_)
    for outcome, seen in judges.course.ahead(judges.steps, first.shape[1]):
        happened += outcome[:, column]
        known = seen
    return auc(first[known].sum(axis=1), happened[known] > 0)


def auc(said: FloatArray, happened: BoolArray) -> float:
    """Probability that a window with the event has a higher forecast than one without it."""
    ranks, positive = rankdata(said), int(happened.sum())
    negative = len(happened) - positive
    if not positive or not negative:
        return float("nan")
    return float((ranks[happened].sum() - positive * (positive + 1) / 2) / (positive * negative))


def report(agent: str, found: Sequence[Mapping[str, Figures]]) -> None:
    """Print the means over the seeds that have a predictor, one column per predictor."""
    print(f"\n{agent}, mean over {len(found)} seeds")
    names = list(found[0])
    rows = dict.fromkeys(figure for each in found[0].values() for figure in each)
    print(f"{'':52s}" + "".join(f"{name:>14s}" for name in names))
    for row in rows:
        values = [[each[name].get(row, np.nan) for each in found if name in each] for name in names]
        print(f"{row:52s}" + "".join(f"{np.mean(value):14.3f}" for value in values), flush=True)
