"""Measure the coverage of 90 % bands: how often they contain the exact truth, over many data sets.

python scripts/band_coverage.py                                 the table of docs/results/uncertainty.md
python scripts/band_coverage.py steps=1e5 policies=0 data=10    a part of it: one policy, ten data sets
python scripts/band_coverage.py env=frozen_lake steps=1e5       in another environment with a table
"""

import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

import numpy as np
from hydra import compose, initialize_config_dir

from tpd.core.bands import ENOUGH_DRAWS, LEVEL, Band
from tpd.core.efo import powers
from tpd.core.explanation import TOLERATED, Explanation
from tpd.core.outcomes import FIRST
from tpd.core.seeding import generator
from tpd.core.types import BoolArray, DiscretePolicy, FloatArray
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import Parts, build
from tpd.sources.collection import collect
from tpd.tracking.mlflow_runs import MlflowTracking

SETTINGS = {"env": "fuel_taxi", "steps": "1e5,5e5,5e6", "policies": "0,1,2,3,4,5,6,7,8", "data": "19"}
EPISODES = 1000
CERTAIN = 1e-12  # probabilities this close to 0 or 1 are not judged
VISITS = (1, 3, 10, 30, 100, 300, 1000, np.inf)


class Tally:
    """Fractions, accumulated over policies and data sets."""

    def __init__(self) -> None:
        self._sums: dict[str, FloatArray] = defaultdict(lambda: np.zeros(2))

    def add(self, figure: str, part: FloatArray | BoolArray, whole: FloatArray | BoolArray) -> None:
        self._sums[figure] += part.sum(), whole.sum()

    def shares(self) -> dict[str, float]:
        return {figure: float(part / whole) for figure, (part, whole) in self._sums.items() if whole}


class Study:
    """One policy, the state-action pairs it visits with their foils, and the truth about them."""

    def __init__(self, env: str, seed: int) -> None:
        with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
            config = compose("config", [f"env={env}", "evaluation=none", f"seed={seed}"])
        self.parts: Parts = build(config)
        self.parts.trainer.train()
        policy = self.parts.trainer.policy
        assert isinstance(policy, DiscretePolicy)
        self.policy = policy
        self.horizon = self.parts.explainer.predictor.horizon
        exact = ExactSolution(self.parts.env, policy, self.parts.outcomes, horizon=self.horizon)
        self.cases = exact.cases(EPISODES, generator(seed, "evaluation"))
        self.foil = np.flatnonzero(~self.cases.own)
        met = self.cases.observations[self.cases.own]  # sorted, and before the foils
        self.fact = np.searchsorted(met, self.cases.observations[self.foil])
        names = self.parts.outcomes.legend.names
        self.each_step = slice(sum(not name.startswith(FIRST) for name in names))  # first occurrences follow
        self.truth = self.cases.expected[:, :, self.each_step]
        self.uncertain = _uncertain(self.truth)

    def table(self, steps: int, data: int) -> PairTable:
        """The table learned from one data set."""
        learner = ReplayedFHTD(self.parts.env, self.policy, self.parts.outcomes, horizon=self.horizon)
        rng = generator(self.parts.seed, f"bands from {steps} steps, data {data}")
        training = self.parts.training
        source = collect(
            self.parts.env,
            self.policy,
            rng,
            steps=steps,
            exploration=training.exploration,
            num_envs=training.num_envs,
        )
        for batch in source:
            learner.update(batch)
        return learner.table()

    def judge(self, steps: int, data_sets: int, tally: Tally) -> None:
        """Add the coverage of the bands of every data set."""
        pairs = self.cases.observations, self.cases.actions
        estimates, supports, widths = [], [], []
        for data in range(data_sets):
            table = self.table(steps, data)
            explained = self._timed(table, tally)
            support = np.where(table.unknown(*pairs)[:, -1] <= TOLERATED, table.support(*pairs), 0)
            band = self._each_step(explained.band())
            self._judge_cells(band, support, tally)
            self._judge_first(explained.sum_band(), support, tally)
            self._judge_contrasts(explained, support, tally)
            estimates.append(table.predict(*pairs)[:, :, self.each_step])
            supports.append(support)
            widths.append(band.high - band.low)
        ends = np.quantile(estimates, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0, method="normal_unbiased")
        width, spread = np.mean(widths, axis=0), ends[1] - ends[0]
        for name, group in self._groups(np.min(supports, axis=0)).items():
            judged = group & self.uncertain
            tally.add(f"{name}/width over spread", width[judged], spread[judged])

    def _judge_cells(self, band: Band, support: FloatArray, tally: Tally) -> None:
        within = _within(band, self.truth)
        for name, group in self._groups(support).items():
            judged = group & self.uncertain
            tally.add(f"{name}/covered", within[judged], judged)
            tally.add(f"{name}/truth below", (self.truth < band.low)[judged], judged)
            tally.add(f"{name}/truth above", (self.truth > band.high)[judged], judged)
            for least, below in pairwise(VISITS):
                visited = judged & ((support >= least) & (support < below))[:, None, None]
                most = "more" if np.isinf(below) else f"{below - 1:.0f}"
                tally.add(f"{name}/covered/{least} to {most} visits", within[visited], visited)

    def _judge_first(self, band: Band, support: FloatArray, tally: Tally) -> None:
        """Judge the bands of first occurrences up to each step."""
        truth = np.cumsum(self.cases.expected[:, :, :-1], axis=1)
        judged = _uncertain(truth)
        judged[:, :, self.each_step] = False
        for name, group in self._groups(support).items():
            of_group = group & judged
            tally.add(f"{name}/first occurrences covered", _within(band, truth)[of_group], of_group)

    def _timed(self, table: PairTable, tally: Tally) -> Explanation:
        """The explained cases with their bands; also measures the time."""
        explainer = Explainer(table, self.policy, self.parts.outcomes.legend)
        start = time.perf_counter()
        explained = explainer.explain(self.cases.observations, self.cases.actions, draws=ENOUGH_DRAWS)
        explained.band()
        tally.add("seconds/bands of all cases", np.array(time.perf_counter() - start), np.array(1))
        return explained

    def _judge_contrasts(self, explained: Explanation, support: FloatArray, tally: Tally) -> None:
        """Judge the contrasts between the action taken and all other valid actions, in all visited states."""
        contrast = explained[self.fact] - explained[self.foil]
        low, high = (end[:, -1] for end in contrast.return_band())
        rewards = self.cases.expected[:, :, :-1] @ self.parts.outcomes.legend.rewards
        value = rewards @ powers(self.policy.discount, self.horizon)
        truth = value[self.fact] - value[self.foil]
        known = (support[self.fact] > 0) & (support[self.foil] > 0)
        tally.add("return contrasts/covered", _within(Band(low, high), truth)[known], known)
        decided = known & ((low > 0) | (high < 0))
        tally.add("return contrasts/without zero", decided[known], known)
        tally.add("return contrasts/without zero, sign wrong", (low * truth < 0)[decided], decided)
        band = self._each_step(contrast.band())
        difference = self.truth[self.fact] - self.truth[self.foil]
        judged = known[:, None, None] & (self.uncertain[self.fact] | self.uncertain[self.foil])
        tally.add("contrasts/covered", _within(band, difference)[judged], judged)

    def _each_step(self, band: Band) -> Band:
        return Band(band.low[:, :, self.each_step], band.high[:, :, self.each_step])

    def _groups(self, support: FloatArray) -> dict[str, BoolArray]:
        """Masks [case, 1, 1] of the known actions taken, and of the known other actions."""
        own, known = self.cases.own, support > 0
        return {"pi": (own & known)[:, None, None], "foils": (~own & known)[:, None, None]}


def _uncertain(truth: FloatArray) -> BoolArray:
    return np.asarray((truth > CERTAIN) & (truth < 1 - CERTAIN))


def _within(band: Band, truth: FloatArray) -> BoolArray:
    return np.asarray((band.low <= truth) & (truth <= band.high))


def table(found: Mapping[int, Mapping[str, float]]) -> str:
    """A Markdown table with one column per number of steps."""
    lines = ["| | " + " | ".join(f"{steps:,} steps" for steps in found) + " |", "|---|" + "--:|" * len(found)]
    figures = list(dict.fromkeys(figure for figures in found.values() for figure in figures))
    for figure in figures:
        cells = [f"{figures[figure]:.3f}" if figure in figures else "-" for figures in found.values()]
        lines.append(f"| {figure} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def read(arguments: Sequence[str]) -> dict[str, str]:
    """The default settings, updated by the arguments."""
    settings = dict(SETTINGS)
    for argument in arguments:
        name, _, value = argument.partition("=")
        if name not in settings:
            sys.exit(f"no setting {name!r}; there are {', '.join(settings)}")
        settings[name] = value
    return settings


def numbers(value: str) -> list[int]:
    return [int(float(number)) for number in value.split(",")]


def main() -> None:
    settings = read(sys.argv[1:])
    studies = [Study(settings["env"], seed) for seed in numbers(settings["policies"])]
    tracking = MlflowTracking(uri="sqlite:///mlflow.db", experiment="coverage")
    found = dict[int, dict[str, float]]()
    with tracking.open("coverage", settings, {}) as tracked:
        for steps in numbers(settings["steps"]):
            tally = Tally()
            for study in studies:
                study.judge(steps, int(settings["data"]), tally)
            found[steps] = tally.shares()
            tracked.metrics(found[steps], steps)
    print(table(found))
    print(f"to look at it: {tracking.ui_command()}")


if __name__ == "__main__":
    main()
