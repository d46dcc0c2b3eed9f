"""Explainers on disk: plain arrays and JSON, so that loading one runs no code of the file's."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np

from tpd.explainer import Explainer
from tpd.outcomes import Legend
from tpd.pair_table import PairTable
from tpd.policies.tabular import TabularPolicy
from tpd.types import Predictor

DESCRIPTION, ARRAYS = "explainer.json", "arrays.npz"
FORMAT = 1


@runtime_checkable
class HasTable(Protocol):
    """A predictor whose answers can be written down."""

    def table(self) -> PairTable:
        """Every pair it knows."""


def check(predictor: Predictor) -> None:
    """Refuse a predictor that could not be saved."""
    if not isinstance(predictor, HasTable):
        raise TypeError(f"{type(predictor).__name__} has no method `table`, so it cannot be saved")


def save(explainer: Explainer, num_states: int, folder: Path) -> None:
    """Write the answers for every pair that is known, and what the policy does in every state."""
    check(explainer.predictor)
    assert isinstance(explainer.predictor, HasTable)
    table = explainer.predictor.table()
    states = np.arange(num_states)
    arrays = {
        "pairs": table.pairs,
        "expected": table.expected.astype(np.float32),
        "support": table.visits,
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
        num_actions = arrays["policy"].shape[1]
        predictor = PairTable(num_actions, arrays["pairs"], arrays["expected"], arrays["support"])
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
