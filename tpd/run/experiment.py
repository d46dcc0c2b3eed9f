"""The map of a run. What it is done with is made in `run/parts.py`; where a transition goes from there:

collected    `learn`: `run/training` has `sources/collection` step the environment, or reads a dataset
learned      `learn`: every batch goes to the predictor's `update` (`predictors/`), in resumable stages
judged       `judge`: errors against the truth and skill of forecasts (`evaluation/`)
drawn        `save_results` and `write_overview`: figures, tables, maps, the report (`show/`)
saved        the same two, in the run's folder (`store/`)
tracked      everywhere: `tracked` is told metrics, tables, files and the model (`tracking/`)
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from tpd.core.seeding import generator
from tpd.core.types import FittingLearner, HasMetrics, Learner, Stage, TransitionsHandler
from tpd.evaluation.budget import Budget
from tpd.evaluation.errors import Errors
from tpd.evaluation.fresh_episodes import judge_forecasts
from tpd.evaluation.learning_curve import LearningCurve
from tpd.evaluation.played_return import PlayedReturn, episode_returns
from tpd.evaluation.verdicts import verdicts
from tpd.kernels.interrupts import interruptible
from tpd.predictors.pair_table import HasTable
from tpd.run.overview import write_overview
from tpd.run.parts import Parts
from tpd.run.results import Findings, live_run, save_explainer, save_results
from tpd.show.progress import ProgressBars, counting
from tpd.sources.episodes import Recording
from tpd.store.checkpoints import run_stages
from tpd.tracking.runs import Run

log = logging.getLogger(__name__)
FIT_STAGES = 10


@interruptible()
def run(parts: Parts, folder: Path, tracked: Run, progress: bool = True, overview: bool = True) -> Findings:
    """Train the policy, learn to explain it, judge the explanations, and save what was found."""
    with _timed("learning", tracked), ProgressBars(progress) as bars:
        curve = learn(parts, tracked, bars, folder)
        save_explainer(parts, folder)  # judging it may fail, or take long
    with _timed("evaluation", tracked), ProgressBars(progress) as bars:
        findings = judge(parts, bars)
        if findings.errors is not None:
            curve[parts.training.transitions(parts.trainer)] = findings.errors
    with _timed("saving", tracked):
        recording = parts.recorder.record(parts.env, parts.trainer.policy, parts.outcomes)
        findings = with_return(parts, findings, recording)
        save_results(parts, findings, curve, recording, folder, tracked)
    if overview:
        with _timed("overview", tracked):
            headline = "" if findings.played is None else findings.played.line
            live = live_run(parts, recording)
            write_overview(live, folder, tracked, parts.overview_seconds, headline)
    return findings


def learn(parts: Parts, tracked: Run, bars: ProgressBars, folder: Path | None = None) -> dict[int, Errors]:
    """Train the policy, and the explainer from its transitions or from others collected after.

    Returns the errors measured on the way, by the number of transitions learned from. With a folder, the
    work resumes from the checkpoint in it, and saves others there.
    """
    predictor, total = parts.explainer.predictor, parts.training.transitions(parts.trainer)
    points = parts.evaluation.curve_points if parts.examiner else 0
    curve = LearningCurve(partial(_measure, parts, tracked), total, points)
    trained, learning = bars.counter("policy", parts.trainer.steps), list[TransitionsHandler]()
    learned = bars.counter("explainer", total if isinstance(predictor, Learner) else 0)
    if isinstance(predictor, Learner):
        learning = [predictor.update, curve, counting(learned)]
    stages = parts.training.stages(
        parts.env,
        parts.trainer,
        generator(parts.seed, "collection"),
        learning=learning,
        watching=[counting(trained)],
        info_keys=parts.outcomes.info_keys,
        on_metrics=tracked.metrics,
    )
    bar_of_stages = [(trained, parts.trainer.steps, parts.trainer.stages)]
    bar_of_stages += [(learned, total, len(stages) - parts.trainer.stages)]
    if isinstance(predictor, FittingLearner):
        fitted = bars.counter("fitting", predictor.fit_updates)
        stages += _fit_stages(predictor, fitted, tracked)
        bar_of_stages += [(fitted, predictor.fit_updates, FIT_STAGES)]
    resumable: dict[str, object] = {"policy": parts.trainer, "curve": curve}
    if isinstance(predictor, Learner):
        resumable["explainer"] = predictor
    checkpoint = None if folder is None else parts.checkpoint(folder)
    run_stages(stages, resumable, checkpoint, partial(_move_to, bar_of_stages))
    return curve.measured


def judge(parts: Parts, bars: ProgressBars) -> Findings:
    """Compare forecasts with fresh episodes, and the explanations with the truth, within a budget of seconds.

    What the explainer is found not to know it says no more.
    """
    budget, evaluation, forecasts, errors = Budget(parts.evaluation.seconds), parts.evaluation, None, None
    if evaluation.forecast_episodes:
        rng = generator(parts.seed, "verification")  # names a random stream: another name, other episodes
        forecasts = judge_forecasts(
            parts.explainer, parts.env, parts.outcomes, rng, evaluation.forecast_episodes, budget
        )
        if not isinstance(parts.explainer.predictor, HasTable):
            legend = parts.outcomes.legend
            parts.explainer.verdicts = verdicts(forecasts.policy, forecasts.foil, legend)
    if parts.examiner is not None:
        parts.examiner.calibrate(evaluation.calibration_episodes, bars.counter, budget)
        errors = parts.examiner.final_errors(evaluation.episodes, budget)
    hidden = "" if parts.examiner is None else parts.examiner.hidden_information
    for remark in filter(None, (budget.remark, hidden)):
        log.warning(remark)
    return Findings(errors, forecasts, budget.remark, hidden=hidden)


def with_return(parts: Parts, findings: Findings, recording: Recording | None) -> Findings:
    """The findings with the return of fresh episodes, or of the recorded ones, if any were played."""
    returns = None if recording is None else episode_returns(recording.episodes)
    if findings.forecasts is not None:
        returns = findings.forecasts.returns
    if returns is None:
        return findings
    played = PlayedReturn.of(returns, getattr(parts.trainer, "expected_return", None))
    if played.warning:
        log.warning(played.warning)
    return replace(findings, played=played)


def _measure(parts: Parts, tracked: Run, step: int) -> Errors:
    assert parts.examiner is not None
    errors = parts.examiner.errors(parts.evaluation.curve_episodes)
    tracked.metrics(errors.metrics(), step)
    return errors


def _move_to(bars: Sequence[tuple[Callable[[int], None], int, int]], done: int) -> None:
    """Move bars, each of a total and so many stages in turn, to where a resumed run begins."""
    for advance, total, stages in bars:
        before = min(done, stages)
        if before:
            advance(total * before // stages)
        done -= before


def _fit_stages(predictor: FittingLearner, advance: Callable[[int], None], tracked: Run) -> list[Stage]:
    """The updates once all transitions have come, in stages that a checkpoint can lie between.

    After each, the figures of its updates are logged, by how many there have been.
    """
    updates = math.ceil(predictor.fit_updates / FIT_STAGES)

    def stage() -> None:
        predictor.fit(advance, updates)
        if isinstance(predictor, HasMetrics) and (figures := predictor.metrics()):
            tracked.metrics(figures, getattr(predictor, "updates", 0))

    return [stage] * FIT_STAGES


@contextmanager
def _timed(phase: str, tracked: Run) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    log.info("%s took %.1f s", phase, seconds)
    tracked.metrics({f"seconds/{phase}": seconds})
