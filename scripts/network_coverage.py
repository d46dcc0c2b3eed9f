"""Whether the bands of networks hold what they promise, against rollouts from forks of the environment.

python scripts/network_coverage.py experiment=mountain_car policy.path=agents/dqn-MountainCar-v0.zip
python scripts/network_coverage.py experiment=lunar_lander policy.path=agents/ppo-LunarLander-v2.zip

Settings are those of scripts/run.py. The bands are calibrated at moments of evaluation.calibration_episodes
and judged at as many moments of evaluation.episodes others.
"""

import sys
from dataclasses import replace

import numpy as np
import pandas as pd
from hydra import compose, initialize_config_dir

from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Contrast, Explanation
from tpd.core.outcomes import FIRST
from tpd.core.seeding import generator
from tpd.core.types import BoolArray, IntArray
from tpd.evaluation.calibration import agrees, calibrate, near, uncertain
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.rollouts import MonteCarlo, SampledCases
from tpd.run.cli import CONFIG_FOLDER
from tpd.run.experiment import learn
from tpd.run.parts import Parts, build
from tpd.show.progress import ProgressBars
from tpd.tracking.mlflow_runs import MlflowTracking

THIRDS = 3
CERTAINLY_WRONG = 0.1
"""How far from what was seen an expectation is that was taken for certain, and should not have been."""


class Judged:
    """Explanations of cases with their bands, cell by cell."""

    def __init__(self, explainer: Explainer, cases: SampledCases) -> None:
        self.explanation: Explanation = explainer.explain(
            cases.observations, cases.actions, draws=ENOUGH_DRAWS
        )
        self.names = explainer.legend.names
        self.events = np.array([name in explainer.legend.events for name in self.names])
        assert cases.standard_error is not None
        self.cases = replace(
            cases,
            expected=cases.expected[:, :, :-1],
            standard_error=cases.standard_error[:, :, :-1],
        )
        self.band = self.explanation.band()
        self.agrees = agrees(self.band, self.explanation.expected, self.cases, self.events)
        self.judged = uncertain(self.explanation.expected, self.events)

    def share(self, among: BoolArray | None = None) -> float:
        """The share of the judged cells whose truth lies in the band."""
        judged = self.judged if among is None else self.judged & among
        return float(self.agrees[judged].mean()) if judged.any() else float("nan")

    def by_outcome(self) -> pd.DataFrame:
        """A row for each outcome."""
        columns = np.arange(len(self.names))
        width = [self.band.width[..., k][self.judged[..., k]] for k in columns]
        return pd.DataFrame(
            {
                "covered": [self.share(columns == k) for k in columns],
                "mean width": [cells.mean() if len(cells) else np.nan for cells in width],
                "cells": [len(cells) for cells in width],
                "cases": [int(self.judged[..., k].any(axis=1).sum()) for k in columns],
            },
            index=pd.Index(self.names, name="outcome"),
        )

    def overall(self) -> dict[str, float]:
        """Shares of all judged cells, of parts of them, and of differences between actions."""
        horizon = self.explanation.horizon
        third = np.arange(horizon)[:, None] * THIRDS // horizon
        own = self.cases.own[:, None, None]
        far = np.abs(self.explanation.expected - self.cases.expected) > CERTAINLY_WRONG
        return {
            "all": self.share(),
            "events": self.share(self.events),
            "other outcomes": self.share(~self.events),
            "taken": self.share(own),
            "passed over": self.share(~own),
            **{f"third {part + 1} of the steps": self.share(third == part) for part in range(THIRDS)},
            **self.so_far(),
            **self.compared(),
            f"certain, and more than {CERTAINLY_WRONG} off": float((far & ~self.agrees)[~self.judged].mean()),
        }

    def so_far(self) -> dict[str, float]:
        """The share of the probabilities to have happened by step h that lie in their band, and its width."""
        first = np.array([name.startswith(FIRST) for name in self.names])
        sums = np.cumsum(self.explanation.expected, axis=1)
        cases = replace(self.cases, expected=np.cumsum(self.cases.expected, axis=1))
        judged = first & uncertain(sums, self.events)
        band = self.explanation.sum_band()
        return {
            "first occurrences so far": float(agrees(band, sums, cases, self.events)[judged].mean()),
            "mean width of these": float(band.width[judged].mean()),
        }

    def compared(self) -> dict[str, float]:
        """Shares of returns, and of differences between action and foil, drawn together."""
        fact, foil, error = self.foil - 1, self.foil, self.cases.return_error
        assert self.cases.standard_error is not None
        squared = self.cases.standard_error**2
        contrast, judged = self.contrast(self.explanation), self.judged[fact] | self.judged[foil]
        true, seen = self.contrast(self.seen), contrast.return_band()
        apart = near(contrast.band(), contrast.expected, true.expected, squared[fact] + squared[foil])
        returns = near(
            self.explanation.return_band(),
            self.explanation.expected_return,
            self.seen.expected_return,
            error**2,
        )
        ahead = near(
            seen, contrast.expected_return, true.expected_return, error[fact] ** 2 + error[foil] ** 2
        )
        return {
            "differences": float(apart[judged].mean()),
            "returns so far": float(returns.mean()),
            "differences of returns so far": float(ahead.mean()),
            "differences of returns to the horizon": float(ahead[:, -1].mean()),
        }

    @property
    def seen(self) -> Explanation:
        """What the rollouts showed."""
        return replace(self.explanation, expected=self.cases.expected)

    @property
    def foil(self) -> IntArray:
        """[foil]: which cases are foils; each follows the action that it is the foil of."""
        return np.flatnonzero(~self.cases.own)

    def contrast(self, explanation: Explanation) -> Contrast:
        return explanation[self.foil - 1] - explanation[self.foil]


def study(parts: Parts, truth: MonteCarlo) -> tuple[pd.DataFrame, pd.DataFrame]:
    """What is covered: by outcome, and overall, also when it is stored without its agent."""
    evaluation, explainer = parts.evaluation, parts.explainer
    rng = generator(parts.seed, "calibration")
    calibrate(explainer, truth, truth.cases(evaluation.calibration_episodes, rng), rng)
    cases = truth.cases(evaluation.episodes, generator(parts.seed, "judging"))
    judged = Judged(explainer, cases)
    stored = Explainer(
        explainer.predictor, AbsentPolicy(explainer.policy.discount, "left out"), explainer.legend
    )
    overall = {"covered": judged.overall(), "without the agent": Judged(stored, cases).overall()}
    return judged.by_outcome(), pd.DataFrame(overall)


def main() -> None:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        config = compose("config", sys.argv[1:])
    parts = build(config)
    make_truth, horizon = parts.evaluation.truth, parts.explainer.predictor.horizon
    truth = make_truth and make_truth(parts.env, parts.trainer.policy, parts.outcomes, horizon=horizon)
    if not isinstance(truth, MonteCarlo):
        sys.exit("bands of networks are judged by rollouts: evaluation=monte_carlo")
    tracking = MlflowTracking(uri="sqlite:///mlflow.db", experiment="coverage of networks")
    with tracking.open(parts.config.name, {}, {}) as tracked:
        with ProgressBars() as bars:
            learn(parts, tracked, bars)
        table, overall = study(parts, truth)
        tracked.metrics({str(part): float(share) for part, share in overall["covered"].items()})
        tracked.table(table.reset_index(), "coverage.json")
    print(table.to_string(float_format="%.3f"), overall.to_string(float_format="%.3f"), sep="\n\n")
    print(f"to look at it: {tracking.ui_command()}")


if __name__ == "__main__":
    main()
