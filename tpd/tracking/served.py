"""A saved explainer as an MLflow model: loaded from arrays and JSON, no pickle."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tpd import storage
from tpd.explainer import Explainer


class ServedExplainer:
    """Predicts expected future outcomes for rows of `state` and `action`: numbers, or lists of them.

    `support` is the number of times the pair was tried. Where that is 0 nothing is known of it, and its
    outcomes are NaN. `unknown` is the probability that by then the future has come to such a pair: the
    outcomes are those of the rest.
    """

    def __init__(self, explainer: Explainer) -> None:
        self.explainer = explainer

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """One row for each pair and step ahead, one column for each outcome."""
        states, actions = (np.array(model_input[name].tolist()) for name in ("state", "action"))
        explanation = self.explainer.explain(states, actions)
        pairs, steps = np.indices(explanation.expected.shape[:2]).reshape(2, -1)
        columns = {
            "pair": pairs,
            "state": list(states[pairs]),
            "action": list(actions[pairs]),
            "step": steps,
        }
        expected = np.where(explanation.known[:, None, None], explanation.expected, np.nan)
        for k, name in enumerate(explanation.legend.names):
            columns[name] = expected[:, :, k].ravel()
        columns["support"] = explanation.support[pairs]
        columns["unknown"] = explanation.unknown.ravel()
        return pd.DataFrame(columns)


def _load_pyfunc(path: str) -> ServedExplainer:
    """Called by MLflow."""
    return ServedExplainer(storage.load(Path(path)))
