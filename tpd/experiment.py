"""The way of the data, from a config to what a person looks at: start reading here."""

import json
import logging
import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from hydra.errors import CompactHydraException, InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tpd import storage
from tpd.checkpoints import Checkpoint, go_through
from tpd.checks import boolean, number, whole_number
from tpd.envs import Environment
from tpd.evaluate import Errors, Evaluation, Examiner, LearningCurve, write_table
from tpd.explainer import Explainer
from tpd.folders import fingerprint
from tpd.kept import EPISODES, EXPLAINER, Kept
from tpd.kernels import interruptible
from tpd.outcomes import OutcomeSet
from tpd.portrait import portray
from tpd.seeding import generator
from tpd.show import reliability, survival
from tpd.show.maps import MapSpec
from tpd.show.progress import ProgressBars
from tpd.show.scenes import Scene, scenes_from_config
from tpd.sources.collection import play
from tpd.sources.recording import Recorder, Recording
from tpd.tracking.runs import Run
from tpd.training import Training
from tpd.types import Learner, SettlingLearner, Trainer, TransitionsCallback
from tpd.verify import Verification, verify

log = logging.getLogger(__name__)

CHECKPOINT = "checkpoint.npz"
SETTLING_STAGES = 10


class ConfigError(CompactHydraException):
    """A setting that cannot be; Hydra prints it as one line."""


@dataclass(frozen=True)
class Parts:
    """Everything that a run needs, made and therefore checked before any work is done."""

    config: DictConfig
    """What they were made of."""
    seed: int
    env: Environment
    outcomes: OutcomeSet
    trainer: Trainer
    explainer: Explainer
    training: Training
    evaluation: Evaluation
    examiner: Examiner | None
    """Knows the truth; None where there is none."""
    scenes: tuple[Scene, ...]
    recorder: Recorder
    portrait: bool
    """Whether it is wanted."""

    def checkpoint(self, folder: Path) -> Checkpoint:
        """Where the run leaves what it has learned so far."""
        mine = fingerprint(settings(self.config))
        return Checkpoint(folder / CHECKPOINT, mine, float(self.config.checkpoint_seconds))


def build(cfg: DictConfig) -> Parts:
    """Make the parts that a config names, refusing what is wrong by the name of its group."""
    with blame("seed"):
        seed = whole_number("seed", cfg.seed, at_least=0, at_most=math.inf)
        rng = generator(seed, "policy")
    env: Environment = _make(cfg, "env")
    with blame("env"):
        env.check()
    outcomes: OutcomeSet = _make(cfg, "outcomes", env)
    with blame("outcomes"):
        env.check_info(outcomes.info_keys)
        if env.model is not None and not outcomes.info_keys:
            outcomes.observe(env.model.transitions()[0])
    trainer: Trainer = _make(cfg, "policy", env, rng)
    policy = trainer.policy
    explainer = Explainer(_make(cfg, "explainer", env, policy, outcomes), policy, outcomes.legend)
    with blame("explainer"):
        storage.check(explainer.predictor)
    training: Training = _make(cfg, "training")
    with blame("training"):
        training.check(env, outcomes.info_keys, fingerprint(settings(cfg)))
        if isinstance(explainer.predictor, Learner) and not training.transitions(trainer):
            raise ValueError("there are no transitions to learn from: steps is 0, and no policy is trained")
    evaluation: Evaluation = _make(cfg, "evaluation")
    examiner = None
    if evaluation.truth is not None:
        with blame("evaluation"):
            truth = evaluation.truth(env, policy, outcomes, horizon=explainer.predictor.horizon)
            examiner = Examiner(explainer, env, truth, seed, policy_stays=not training.alongside)
    with blame("figures"):
        scenes = scenes_from_config(cfg.figures, env)
    with blame("maps"):
        MapSpec.from_config(cfg.maps, env)
    recorder: Recorder = _make(cfg, "recording")
    playing = {
        "policy.steps": trainer.steps,
        "evaluation.verification_episodes": evaluation.verification_episodes,
        "recording.episodes": recorder.episodes,
    }
    for name, count in playing.items():
        if count and not env.playable:
            raise ConfigError(f"env: {env.id} cannot be stepped, so {name} must be 0")
    with blame("portrait"):
        portrait = boolean("portrait", cfg.portrait)
    with blame("checkpoint_seconds"):
        number("checkpoint_seconds", cfg.checkpoint_seconds, 0, float("inf"))
    return Parts(
        config=cfg,
        seed=seed,
        env=env,
        outcomes=outcomes,
        trainer=trainer,
        explainer=explainer,
        training=training,
        evaluation=evaluation,
        examiner=examiner,
        scenes=scenes,
        recorder=recorder,
        portrait=portrait,
    )


@dataclass(frozen=True)
class Findings:
    """How good the explanations turned out to be."""

    errors: Errors | None
    """Against the truth, where it can be had."""
    verification: Verification | None
    """Against what really happened in fresh episodes."""


@interruptible()
def run(parts: Parts, folder: Path, tracked: Run, progress: bool = True, portrait: bool = True) -> Findings:
    """Train the policy, learn to explain it, judge the explanations, keep what was found, and portray it."""
    with _timed("learning", tracked), ProgressBars(progress) as bars:
        curve = learn(parts, tracked, bars, folder)
    with _timed("evaluation", tracked), ProgressBars(progress) as bars:
        if parts.examiner is not None:
            parts.examiner.calibrate(parts.evaluation.calibration_episodes, bars.counter)
        findings = judge(parts)
        if findings.errors is not None:
            curve[parts.training.transitions(parts.trainer)] = findings.errors
    with _timed("keeping", tracked):
        recording = keep(parts, findings, curve, folder, tracked)
    if portrait:
        with _timed("portrait", tracked):
            kept = Kept(parts.config, parts.explainer, parts.env, recording, trusted=None)
            portray(kept, folder, tracked)
    return findings


def learn(parts: Parts, tracked: Run, bars: ProgressBars, folder: Path | None = None) -> dict[int, Errors]:
    """Train the policy, and the explainer from its transitions or from others collected after.

    With a folder, go on from the checkpoint that lies there, and leave others while it goes on. The errors
    measured on the way, by the number of transitions learned from.
    """
    predictor, learning = parts.explainer.predictor, list[TransitionsCallback]()
    total = parts.training.transitions(parts.trainer)

    def measure(step: int) -> Errors:
        assert parts.examiner is not None
        errors = parts.examiner.errors(parts.evaluation.curve_episodes)
        tracked.metrics(errors.metrics(), step)
        return errors

    curve = LearningCurve(measure, total, parts.evaluation.curve_points if parts.examiner else 0)
    if isinstance(predictor, Learner):
        learning = [predictor.update, curve, bars.bar("explainer", total)]
    stages = parts.training.stages(
        parts.env,
        parts.trainer,
        generator(parts.seed, "collection"),
        learning=learning,
        watching=[bars.bar("policy", parts.trainer.steps)],
        info_keys=parts.outcomes.info_keys,
        report=tracked.metrics,
    )
    if isinstance(predictor, SettlingLearner):
        advance = bars.counter("settling", predictor.settling)
        leg = math.ceil(predictor.settling / SETTLING_STAGES)
        stages += [partial(predictor.settle, advance, leg)] * SETTLING_STAGES
    resumed: dict[str, object] = {"policy": parts.trainer, "curve": curve}
    if isinstance(predictor, Learner):
        resumed["explainer"] = predictor
    go_through(stages, resumed, None if folder is None else parts.checkpoint(folder))
    return curve.measured


def judge(parts: Parts) -> Findings:
    """What is wrong with the explanations: against the truth, and against what then really happened."""
    errors, verification = None, None
    if parts.examiner is not None:
        errors = parts.examiner.errors(parts.evaluation.episodes, bands=True)
    if parts.evaluation.verification_episodes:
        fresh = play(
            parts.env,
            parts.trainer.policy,
            generator(parts.seed, "verification"),
            episodes=parts.evaluation.verification_episodes,
            info_keys=parts.outcomes.info_keys,
        )
        verification = verify(parts.explainer, parts.outcomes, fresh)
    return Findings(errors, verification)


def keep(
    parts: Parts, findings: Findings, curve: Mapping[int, Errors], folder: Path, tracked: Run
) -> Recording | None:
    """Write everything to the folder, and hand it to whoever tracks the run.

    The episodes that were recorded to look at.
    """
    plots, step = folder / "plots", parts.training.transitions(parts.trainer)
    plots.mkdir(parents=True, exist_ok=True)
    for scene in parts.scenes:
        figure, explanation = scene.draw(parts.explainer, parts.env, f"seed {parts.seed}")
        figure.savefig(plots / f"{scene.name}.png")
        storage.save_explanation(explanation, folder / f"{scene.name}.npz")
    if findings.verification is not None:
        reliability.draw(findings.verification, f"Reliability, seed {parts.seed}").savefig(
            plots / "reliability.png"
        )
        write_table(findings.verification.frame(), folder / "verification.json")
        tracked.metrics(findings.verification.metrics(), step)
        tracked.table(findings.verification.frame(), "verification.json")
    if parts.examiner is not None and (rolled_out := parts.examiner.rolled_out) is not None:
        page = survival.draw(parts.explainer, *rolled_out, f"What has happened by then, seed {parts.seed}")
        if page is not None:
            page.savefig(plots / "survival.png")
    tracked.files(plots, "plots")
    recording = parts.recorder.record(parts.env, parts.trainer.policy, parts.outcomes)
    if recording is not None:
        storage.save_recording(recording, folder / EPISODES)
        tracked.files(folder / EPISODES)
    storage.save(parts.explainer, parts.env, folder / EXPLAINER)
    tracked.model(folder / EXPLAINER, EXPLAINER)
    if findings.errors is not None:
        errors = findings.errors
        write_table(errors.frame(), folder / "errors.json")
        (folder / "metrics.json").write_text(json.dumps(errors.metrics()))
        tracked.metrics(errors.metrics(), step)
        tracked.table(errors.frame(), "errors.json")
    if curve:
        frames = [measured.frame().assign(step=step) for step, measured in curve.items()]
        write_table(pd.concat(frames), folder / "curve.json")
    return recording


def settings(cfg: DictConfig) -> dict[str, Any]:
    """The config as plain values, interpolations resolved."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _make(cfg: DictConfig, group: str, *arguments: Any) -> Any:
    """Instantiate a config group, calling what is only partial with the arguments."""
    with blame(group):
        if cfg[group] is None:
            raise ValueError("it must be named, got null")
        made = instantiate(cfg[group], _convert_="all")
        return made(*arguments) if isinstance(made, partial) else made


@contextmanager
def blame(group: str) -> Iterator[None]:
    """Turn an error into one line that names the part of the config it comes from."""
    try:
        yield
    except ConfigError:
        raise
    except InstantiationException as error:
        raise ConfigError(f"{group}: {error.__cause__ or error}") from error
    except Exception as error:
        raise ConfigError(f"{group}: {error}") from error


@contextmanager
def _timed(phase: str, tracked: Run) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    log.info("%s took %.1f s", phase, seconds)
    tracked.metrics({f"seconds/{phase}": seconds})
