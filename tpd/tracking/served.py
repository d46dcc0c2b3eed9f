"""A saved explainer as an MLflow model: loaded from arrays and JSON, no pickle."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tpd import storage
from tpd.explainer import Explainer


class ServedExplainer:
    """Predicts expected future outcomes for rows of `state` and `action`."""

    def __init__(self, explainer: Explainer) -> None:
        self.explainer = explainer

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """One row for each pair and step ahead, one column for each outcome."""
        explanation = self.explainer.explain(
            model_input["state"].to_numpy(), model_input["action"].to_numpy()
        )
        pairs, steps = np.indices(explanation.expected.shape[:2]).reshape(2, -1)
        columns = {
            "pair": pairs,
            "state": explanation.observations[pairs],
            "action": explanation.actions[pairs],
            "step": steps,
        }
        for k, name in enumerate(explanation.legend.names):
            columns[name] = explanation.expected[:, :, k].ravel()
        return pd.DataFrame(columns)


def _load_pyfunc(path: str) -> ServedExplainer:
    """Called by MLflow."""
    return ServedExplainer(storage.load(Path(path)))
