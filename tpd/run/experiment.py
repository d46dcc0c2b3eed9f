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

import pandas as pd

from tpd.core.seeding import generator
from tpd.core.types import Learner, SettlingLearner, TransitionsCallback
from tpd.evaluation.errors import Errors
from tpd.evaluation.forecasts import Verification, verify
from tpd.evaluation.learning_curve import LearningCurve
from tpd.kernels.interrupts import interruptible
from tpd.run.overview import portray
from tpd.run.parts import Parts
from tpd.show import reliability, survival_curves
from tpd.show.progress import ProgressBars
from tpd.sources.collection import play
from tpd.sources.episodes import Recording
from tpd.store import explainers
from tpd.store.checkpoints import go_through
from tpd.store.explanations import save_explanation
from tpd.store.recordings import save_recording
from tpd.store.saved_runs import EPISODES, EXPLAINER, Kept
from tpd.store.tables import write_table
from tpd.tracking.runs import Run

log = logging.getLogger(__name__)
SETTLING_STAGES = 10


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
        save_explanation(explanation, folder / f"{scene.name}.npz")
    if findings.verification is not None:
        reliability.draw(findings.verification, f"Reliability, seed {parts.seed}").savefig(
            plots / "reliability.png"
        )
        write_table(findings.verification.frame(), folder / "verification.json")
        tracked.metrics(findings.verification.metrics(), step)
        tracked.table(findings.verification.frame(), "verification.json")
    if parts.examiner is not None and (rolled_out := parts.examiner.rolled_out) is not None:
        page = survival_curves.draw(
            parts.explainer, *rolled_out, f"What has happened by then, seed {parts.seed}"
        )
        if page is not None:
            page.savefig(plots / "survival.png")
    tracked.files(plots, "plots")
    recording = parts.recorder.record(parts.env, parts.trainer.policy, parts.outcomes)
    if recording is not None:
        save_recording(recording, folder / EPISODES)
        tracked.files(folder / EPISODES)
    explainers.save(parts.explainer, parts.env, folder / EXPLAINER)
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


@contextmanager
def _timed(phase: str, tracked: Run) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    log.info("%s took %.1f s", phase, seconds)
    tracked.metrics({f"seconds/{phase}": seconds})
