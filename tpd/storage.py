"""Explainers on disk: plain arrays and JSON, so that loading one runs no code of the file's."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tpd.explainer import Explainer
from tpd.outcomes import Legend
from tpd.policies.tabular import TabularPolicy
from tpd.types import Array, FloatArray, TablePredictor

DESCRIPTION, ARRAYS = "explainer.json", "arrays.npz"
FORMAT = 1


class StoredTable:
    """Predictions for all states and actions, as they were when they were saved."""

    def __init__(self, expected: FloatArray, support: FloatArray) -> None:
        self._expected = expected
        self._support = support

    def table(self) -> tuple[FloatArray, FloatArray]:
        return self._expected, self._support

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        return self._expected[observations, actions]

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return self._support[observations, actions]


def save(explainer: Explainer, folder: Path) -> None:
    """Write the answers for every state and action."""
    if not isinstance(explainer.predictor, TablePredictor):
        raise TypeError(f"{type(explainer.predictor).__name__} has no table to save")
    expected, support = explainer.predictor.table()
    states = np.arange(len(expected))
    arrays = {
        "expected": expected.astype(np.float32),
        "support": support,
        "policy": explainer.policy.probabilities(states),
    }
    values = explainer.policy.action_values(states)
    if values is not None:
        arrays["action_values"] = values
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / ARRAYS, allow_pickle=False, **arrays)
    description = {
        "format": FORMAT,
        "discount": explainer.policy.discount,
        "legend": asdict(explainer.legend),
    }
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2))


def load(folder: Path) -> Explainer:
    """Read an explainer that `save` wrote."""
    description = json.loads((folder / DESCRIPTION).read_text())
    if description.get("format") != FORMAT:
        raise ValueError(f"{folder} has format {description.get('format')!r}, this is for {FORMAT}")
    legend = description["legend"]
    with np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        values = arrays.get("action_values")
        policy = TabularPolicy(arrays["policy"], description["discount"], values)
        predictor = StoredTable(arrays["expected"], arrays["support"])
    return Explainer(
        predictor,
        policy,
        Legend(
            tuple(legend["names"]),
            tuple(legend["weights"]),
            tuple(legend["partition"]),
            legend["reward_bound"],
        ),
    )
