"""Compare tpd's methods with alternatives, learned from the same transitions: docs/results/comparison.md.

    python scripts/comparison.py worlds=[fuel_taxi,frozen_lake] transitions=[10000,100000]
    python scripts/comparison.py worlds=[cart_pole] agents_folder=... seeds=1
    python scripts/comparison.py report docs/results/comparison   # tables and picture, from existing results

Every world, method, number of transitions and seed writes a JSON file to outputs/comparison, and is skipped
if that exists; each is also a run of the MLflow experiment "comparison".
`methods=[replayed]` selects methods, `moments=20` sets the number of moments, `fit_updates=300` reduces the
updates of networks. Results with such settings have files of their own. In worlds with vector observations,
methods learn from 100,000 transitions, whatever `transitions` says.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as on the command line; read when torch is imported

import numpy as np
from comparison_case import MIXED, ROLLOUTS, TABLES, VECTORS, WORLDS, Case, Settings
from comparison_scores import Figures, Said, joined, scores
from rival_explanations import Surrogate

from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.outcomes import FIRST
from tpd.core.seeding import generator
from tpd.core.types import FittingLearner, Learner, Predictor, Transitions
from tpd.evaluation.forecasts import forecast_skill
from tpd.predictors.abilities import DrawingPredictor, SolvingPredictor
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import HasTable
from tpd.predictors.rivals.networks.learner import QUANTITIES, RivalNetwork
from tpd.predictors.rivals.outcome_gvfs import OutcomeGVFs
from tpd.store.explainers import HasNetwork
from tpd.tracking.mlflow_runs import MlflowTracking

TIMED = 20
"""Number of answers over which CPU seconds are averaged."""
SURROGATE_PAIRS = 2000


def cpu_seconds(work: Callable[[], object]) -> float:
    """CPU seconds of this process and of its finished children."""

    def used() -> float:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in both)

    start = used()
    work()
    return used() - start


def taught(case: Case, method: str, batches: Sequence[Transitions]) -> tuple[Predictor, float]:
    """Train a method on these transitions; also returns the CPU seconds."""
    key = method, sum(map(len, batches))
    if key in case.taught:
        return case.taught[key]
    if method in (*MIXED, "auto"):
        auto = case.mixture(key[1])
        if method == "auto":
            seconds = sum(taught(case, part, batches)[1] for part in MIXED)
            case.taught[key] = auto, seconds + cpu_seconds(auto.weigh)
            return case.taught[key]
        predictor: Predictor = getattr(auto, method)
    else:
        predictor = case.learner(method, key[1])
    assert isinstance(predictor, Learner)

    def learn() -> None:
        for batch in batches:
            predictor.update(batch)
        if isinstance(predictor, FittingLearner):
            predictor.fit(lambda updates: None)
        if isinstance(predictor, SolvingPredictor):
            predictor.solved()

    seconds = cpu_seconds(learn)
    if method in MIXED:
        case.taught[key] = predictor, seconds
    return predictor, seconds


def measured(case: Case, method: str, batches: Sequence[Transitions]) -> Figures:
    """All figures of a method trained on these transitions."""
    predictor, seconds = taught(case, method, batches)
    figures = {"seconds to learn": seconds, "bytes": float(footprint(predictor))}
    explainer = Explainer(predictor, case.policy, case.outcomes.legend)
    if method in VECTORS:
        case.calibrated(explainer)
    observations, actions = case.pairs
    singles = [slice(2 * k, 2 * k + 2) for k in range(min(TIMED, len(case.asked)))]

    def answer() -> None:
        for rows in singles:
            explainer.explain(observations[rows], actions[rows])

    figures["seconds an answer"] = cpu_seconds(answer) / len(singles)
    drawing = isinstance(
        predictor.solved() if isinstance(predictor, SolvingPredictor) else predictor, DrawingPredictor
    )
    draws = ENOUGH_DRAWS if drawing or explainer.errors is not None else 0
    said = Said.of(explainer.explain(observations, actions, draws=draws), explainer.limits is not None)
    return figures | scores(said, case.truth) | skills(explainer, case) | surrogate(predictor, case)


def surrogate(predictor: Predictor, case: Case) -> Figures:
    """How well GVFs explain the agent's own action values, on pairs held out from the surrogate's fit."""
    steps = case.fresh.transitions[:: max(1, len(case.fresh.transitions) // SURROGATE_PAIRS)]
    values = case.policy.action_values(steps.observation)
    if isinstance(predictor, OutcomeGVFs):
        gvfs = predictor.totals(steps.observation, steps.action)[:, :-1]
    elif isinstance(predictor, RivalNetwork) and type(predictor.quantity) is QUANTITIES["outcomes"]:
        gvfs = predictor.solved().quantities(steps.observation, steps.action).astype(np.float64)
    else:
        return {}
    if values is None:
        return {}
    own, known = values[np.arange(len(steps)), steps.action], np.isfinite(gvfs).all(axis=1)
    fitted = Surrogate.fitted(gvfs[known], own[known], generator(case.seed, "surrogate"))
    return {"R² of the surrogate": fitted.r_squared}


def skills(explainer: Explainer, case: Case) -> Figures:
    """Brier skill of the decisive events on fresh episodes."""
    found = forecast_skill(explainer, case.outcomes, case.fresh)
    figures = Figures()
    for event in case.world.decisive:
        column = found.names.index(FIRST + event)
        for row, steps in enumerate(found.by.ranges):
            figures[f"{event}: skill {steps}"] = float(found.by.scores.skill[row, column])
    return figures


def simulated(case: Case, rollouts: int) -> Figures:
    """Figures of rollouts of the simulator, which learn nothing."""
    parts = list[Said]()

    def answer() -> None:
        parts.extend(Said.of(one, False) for one in case.rolled_out(rollouts, f"{rollouts} rollouts"))

    figures = {"seconds to learn": 0.0, "seconds an answer": cpu_seconds(answer) / len(case.asked)}
    return figures | {"bytes": 0.0} | scores(joined(parts), case.truth)


def footprint(predictor: Predictor) -> int:
    """Bytes that a predictor needs to answer."""
    if isinstance(predictor, HasNetwork):
        return sum(array.nbytes for array in predictor.arrays().values())
    assert isinstance(predictor, HasTable)
    table = predictor.table()
    kept = [*vars(table).values(), *(vars(table.edges).values() if table.edges is not None else ())]
    return sum(part.nbytes for part in kept if isinstance(part, np.ndarray))


def path_of(settings: Settings, world: str, method: str, transitions: int, seed: int) -> Path:
    named = f"{world}-{method}-{transitions}-{seed}"
    return Path(settings.out) / f"{'-'.join([named, *settings.changed])}.json"


def intact(path: Path) -> bool:
    """Whether a result exists; one that cannot be read is measured again."""
    try:
        json.loads(path.read_text())
    except FileNotFoundError:
        return False
    except ValueError:
        print(f"{path} is damaged, and measured again", flush=True)
        return False
    return True


def keep(settings: Settings, figures: Figures, about: dict[str, Any]) -> None:
    """Write the figures to a file, and track them."""
    path = path_of(settings, about["world"], about["method"], about["transitions"], about["seed"])
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_suffix(".part")
    part.write_text(json.dumps(about | {"figures": figures}, indent=2))
    part.replace(path)
    if settings.uri:
        tags = {"tpd.role": "comparison", "seed": str(about["seed"]), "explainer": about["method"]}
        with MlflowTracking(uri=settings.uri, experiment="comparison").open(path.stem, about, tags) as run:
            run.metrics({name.replace(":", " /"): value for name, value in figures.items()})
    print(f"{path.stem}: {figures['seconds to learn']:.1f} s of CPU to learn", flush=True)


def measure_world(settings: Settings, name: str, seed: int) -> int:
    """Measure everything that is missing for one world and seed; returns the number of results."""
    learned = TABLES if WORLDS[name].agent is None else VECTORS
    sizes = settings.transitions if WORLDS[name].agent is None else [100_000]
    missing = {
        (method, size)
        for method, size in [
            *((method, size) for method in settings.wanted([*learned]) for size in sizes),
            *((method, 0) for method in settings.wanted([*ROLLOUTS])),
        ]
        if not intact(path_of(settings, name, method, size, seed))
    }
    if not missing:
        return 0
    case = Case(settings, name, seed)
    for size in sorted({size for _, size in missing}):
        batches: list[Transitions] = []
        collecting = cpu_seconds(lambda: batches.extend(case.collected(size)))  # noqa: B023
        for method in [method for method in (*ROLLOUTS, *learned) if (method, size) in missing]:
            figures = measured(case, method, batches) if size else simulated(case, ROLLOUTS[method])
            figures["seconds to collect"] = collecting
            about = {"world": name, "method": method, "transitions": size, "seed": seed}
            about |= {"moments": len(case.asked), "episodes": settings.episodes}
            about |= {"fit_updates": settings.fit_updates} if settings.fit_updates is not None else {}
            about |= {"overrides": [*settings.overrides]} if settings.overrides else {}
            keep(settings, figures, about)
    return len(missing)


def main(words: Sequence[str]) -> None:
    if words == ["report"]:
        sys.exit("report needs a page: comparison.py report docs/results/comparison [folder of results]")
    if words[:1] == ["report"]:
        from comparison_report import write_report

        write_report(Path(words[2] if len(words) > 2 else Settings.out), Path(words[1]))
        return
    settings = Settings.typed(words)
    each = [(seed, name) for seed in range(settings.seeds) for name in settings.worlds]
    measured_now = sum(measure_world(settings, name, seed) for seed, name in each)
    print(
        f"{measured_now} results measured, in {settings.out}; for tables and picture: "
        f"python scripts/comparison.py report docs/results/comparison {settings.out}"
    )


if __name__ == "__main__":
    main(sys.argv[1:])
