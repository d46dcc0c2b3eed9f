"""The map of the code: every step of a run, in order.

`run/parts.py` builds the objects of a run from its config. From there a transition goes this way:

collected    `learn`: `run/training` steps the environment (`sources/collection`), or reads a dataset
learned      `learn`: each batch is passed to the predictor's `update` (`predictors/`), in resumable stages
judged       `judge`: errors against the truth, and the skill of forecasts in fresh episodes (`evaluation/`)
drawn        `save_results`, `write_overview`: figures, tables, maps and the report (`show/`)
saved        the same two functions write them to the run's folder (`store/`)
tracked      all along: `tracked` receives metrics, tables, files and the model (`tracking/`)
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
from tpd.evaluation.forecasts import verdicts
from tpd.evaluation.fresh_episodes import judge_forecasts
from tpd.evaluation.learning_curve import LearningCurve
from tpd.evaluation.played_return import PlayedReturn, all_ended, episode_returns
from tpd.kernels.interrupts import interruptible
from tpd.predictors.pair_table import HasTable
from tpd.run.overview import write_overview
from tpd.run.parts import Parts
from tpd.run.results import Findings, live_run, save_explainer, save_results
from tpd.show.progress import ProgressBars, counting
from tpd.sources.episodes import Recording
from tpd.store.checkpoints import run_stages
from tpd.store.fingerprints import digest_of
from tpd.tracking.runs import Run

log = logging.getLogger(__name__)
FIT_STAGES = 10
"""The updates after the last transition are split into this many stages; checkpoints lie between stages."""


@interruptible()
def run(parts: Parts, folder: Path, tracked: Run, progress: bool = True, overview: bool = True) -> Findings:
    """Train the policy, learn to explain it, judge the explanations, and save the results in `folder`.

    tracked: the run in the tracking store.
    overview: whether to write maps, turning points and the report.
    """
    with _timed("learning", tracked), ProgressBars(progress) as bars:
        curve = learn(parts, tracked, bars, folder)
        save_explainer(parts, folder)  # first, since judging may take long or fail
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
            write_overview(live_run(parts, recording), folder, tracked, parts.overview_seconds, headline)
    return findings


def learn(parts: Parts, tracked: Run, bars: ProgressBars, folder: Path | None = None) -> dict[int, Errors]:
    """Train the policy, then the explainer; or both at once, if `training.alongside` is set.

    Returns the learning curve: errors against the truth, by the number of transitions learned from. With a
    folder, training resumes from the checkpoint in it and writes new checkpoints there.
    """
    predictor, total = parts.explainer.predictor, parts.training.transitions(parts.trainer)
    points = parts.evaluation.curve_points if parts.examiner else 0
    curve = LearningCurve(partial(_measure, parts, tracked), total, points)
    trained, learning = bars.counter("policy", parts.trainer.steps), list[TransitionsHandler]()
    learned = bars.counter("explainer", total if isinstance(predictor, Learner) else 0)
    if isinstance(predictor, Learner):  # an exact predictor learns nothing
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
    # (advance, total, number of stages) of each phase, to restore the progress bars of a resumed run
    bar_of_stages = [(trained, parts.trainer.steps, parts.trainer.stages)]
    bar_of_stages += [(learned, total, len(stages) - parts.trainer.stages)]
    if isinstance(predictor, FittingLearner):
        fitted = bars.counter("fitting", predictor.fit_updates)
        stages += _fit_stages(predictor, fitted, tracked)
        bar_of_stages += [(fitted, predictor.fit_updates, FIT_STAGES)]
    # what a checkpoint stores
    resumable: dict[str, object] = {"policy": parts.trainer, "curve": curve}
    if isinstance(predictor, Learner):
        resumable["explainer"] = predictor
    checkpoint = None if folder is None else parts.checkpoint(folder)
    run_stages(stages, resumable, checkpoint, partial(_move_to, bar_of_stages))
    if isinstance(predictor, Learner):
        _track_data(parts, total, tracked)
    return curve.measured


def _track_data(parts: Parts, rows: int, tracked: Run) -> None:
    """Track which transitions were learned from; those that are not saved are identified by the run."""
    if (source := parts.training.source) is None:
        tracked.data(f"{parts.env.id} transitions", parts.fingerprint, rows)
    else:
        tracked.data(source.name, digest_of(source), rows, str(source.absolute()))


def judge(parts: Parts, bars: ProgressBars) -> Findings:
    """Judge the forecasts by fresh episodes and the explanations by the truth, within a time budget.

    Sets the explainer's verdicts, unless it is a table. From then on the explainer gives no number for an
    outcome without the verdict "learned".
    """
    budget, evaluation, forecasts, errors = Budget(parts.evaluation.seconds), parts.evaluation, None, None
    if episodes := evaluation.forecast_episodes:
        rng = generator(parts.seed, "verification")  # renaming the stream changes the episodes
        forecasts = judge_forecasts(parts.explainer, parts.env, parts.outcomes, rng, episodes, budget)
        if not isinstance(parts.explainer.predictor, HasTable):
            parts.explainer.verdicts = verdicts(forecasts.policy, forecasts.foil, parts.outcomes.legend)
    if parts.examiner is not None:
        parts.examiner.calibrate(evaluation.calibration_episodes, bars.counter, budget)
        errors = parts.examiner.final_errors(evaluation.episodes, budget)
    hidden = "" if parts.examiner is None else parts.examiner.hidden_information
    for remark in filter(None, (budget.remark, hidden)):
        log.warning(remark)
    return Findings(errors, forecasts, budget.remark, hidden=hidden)


def with_return(parts: Parts, findings: Findings, recording: Recording | None) -> Findings:
    """Add the mean return of the policy, from the fresh episodes, or else from whole recorded ones."""
    if findings.forecasts is not None:
        returns = findings.forecasts.returns
    elif recording is not None and all_ended(recording.episodes):
        returns = episode_returns(recording.episodes)
    else:
        return findings
    played = PlayedReturn.of(returns, getattr(parts.trainer, "expected_return", None))
    if played.warning:
        log.warning(played.warning)
    return replace(findings, played=played)


def _measure(parts: Parts, tracked: Run, step: int) -> Errors:
    """Measure and track the errors at one point of the learning curve."""
    assert parts.examiner is not None
    errors = parts.examiner.errors(parts.evaluation.curve_episodes)
    tracked.metrics(errors.metrics(), step)
    return errors


def _move_to(bars: Sequence[tuple[Callable[[int], None], int, int]], done: int) -> None:
    """Advance the bars (advance, total, stages) of the phases of a resumed run past the `done` stages."""
    for advance, total, stages in bars:
        if before := min(done, stages):
            advance(total * before // stages)
        done -= before


def _fit_stages(predictor: FittingLearner, advance: Callable[[int], None], tracked: Run) -> list[Stage]:
    """Split the updates made after the last transition into stages, so that checkpoints fit between them.

    After each stage, the predictor's metrics are logged by the number of updates.
    """
    updates = math.ceil(predictor.fit_updates / FIT_STAGES)

    def stage() -> None:
        predictor.fit(advance, updates)
        if isinstance(predictor, HasMetrics) and (figures := predictor.metrics()):
            tracked.metrics(figures, getattr(predictor, "updates", 0))

    return [stage] * FIT_STAGES


@contextmanager
def _timed(phase: str, tracked: Run) -> Iterator[None]:
    """Log and track the duration of a phase."""
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    log.info("%s took %.1f s", phase, seconds)
    tracked.metrics({f"seconds/{phase}": seconds})
