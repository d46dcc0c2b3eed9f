"""Measure the skill of rollouts in the environment of a run, beside the skill of its learned predictions.

python scripts/rollout_skill.py run=outputs/runs/2026-01-01_12-00-00 moments=100 rollouts=30

Each rollout from a moment is predicted by the mean of the others. The skill is defined as in the run's table:
1 - score / reference, for sums up to 5, 15 and 29 steps.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from tpd.core.efo import compose
from tpd.core.seeding import generator
from tpd.core.types import FloatArray
from tpd.evaluation.forecasts import RETURN, by_steps
from tpd.predictors.rollouts import MonteCarlo
from tpd.store import saved_runs

SETTINGS = {"run": "", "moments": "100", "rollouts": "30", "episodes": "50", "seed": "0"}


def skill_of_rollouts(samples: Sequence[FloatArray]) -> FloatArray:
    """[...]: the skill of rollouts [rollout, ...], of which each moment has at least one.

    A moment with a single rollout is deterministic, so the rollout is exact.
    """
    seen = np.concatenate(samples)
    weight = np.concatenate([np.full(len(one), 1 / len(one)) for one in samples])
    weight = (weight / weight.sum()).reshape(-1, *(1,) * (seen.ndim - 1))
    reference = (weight * (seen - (weight * seen).sum(axis=0)) ** 2).sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(1 - np.mean([_score(one) for one in samples], axis=0) / reference)


def _score(rollouts: FloatArray) -> FloatArray:
    """[...]: the mean squared error of predicting each rollout [rollout, ...] by the mean of the others."""
    count = len(rollouts)
    if count == 1:
        return np.zeros(rollouts.shape[1:])
    return np.asarray(rollouts.var(axis=0, ddof=1) * count / (count - 1))


def measured(settings: dict[str, str]) -> pd.DataFrame:
    """The skill by outcome, for the policy's action and for a foil at each moment."""
    run = saved_runs.read(Path(settings["run"]))
    outcomes, policy = run.outcomes(), run.explainer.policy
    moments, rollouts = int(settings["moments"]), int(settings["rollouts"])
    horizon = run.explainer.predictor.horizon
    truth = MonteCarlo(run.env, policy, outcomes, horizon=horizon, moments=moments, rollouts=rollouts)
    rng = generator(int(settings["seed"]), "rollout skill")
    asked = truth.choose(int(settings["episodes"]), rng)
    sums = list[FloatArray]()
    for sample in truth.simulator.sample(asked, rollouts):
        seen = sample.seen[..., :-1].astype(np.float64)
        returns = compose(seen @ outcomes.legend.rewards, policy.discount, axis=2)
        sums.append(np.concatenate([np.cumsum(seen, axis=2), returns[..., None]], axis=3))
    columns = {}
    for choice, actions in enumerate(("policy", "foil")):
        for step in by_steps(horizon):
            by_then = [one[:, choice, step] for one in sums if one.shape[1] > choice]
            columns[actions, f"by {step}"] = skill_of_rollouts(by_then)
    return pd.DataFrame(columns, index=[*outcomes.legend.names, RETURN])


def main(words: list[str]) -> None:
    """Parse `name=value` and print the table."""
    settings = SETTINGS | dict(word.split("=", 1) for word in words if "=" in word)
    if settings.keys() != SETTINGS.keys() or not settings["run"]:
        sys.exit(__doc__)
    print(measured(settings).to_string(float_format="%.2f"))


if __name__ == "__main__":
    main(sys.argv[1:])
