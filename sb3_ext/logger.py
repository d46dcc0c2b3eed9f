"""Sends SB3's own metrics to the tracked run of the explainer."""

from typing import Any

import numpy as np
from stable_baselines3.common.logger import KVWriter, Logger

from tpd.core.types import MetricsCallback

FORMAT = "mlflow"


class RunOutput(KVWriter):
    """An output format of SB3's Logger that logs finite numbers to a run; it does not end the run.

    Text, images, figures, videos and values recorded with `exclude="mlflow"` are ignored.
    """

    def __init__(self, on_metrics: MetricsCallback) -> None:
        self._on_metrics = on_metrics

    def write(
        self, key_values: dict[str, Any], key_excluded: dict[str, tuple[str, ...]], step: int = 0
    ) -> None:
        numbers = {
            key: float(value)
            for key, value in key_values.items()
            if FORMAT not in key_excluded.get(key, ()) and _is_finite_number(value)
        }
        self._on_metrics(numbers, step)

    def close(self) -> None:
        """Do nothing: the run stays open."""


def _is_finite_number(value: object) -> bool:
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    return number and bool(np.isfinite(value))  # type: ignore[call-overload]  # it is a number here


def logger(on_metrics: MetricsCallback, *others: KVWriter) -> Logger:
    """A logger for `model.set_logger`, for example `logger(run.metrics)`, with optional other formats."""
    return Logger(folder=None, output_formats=[RunOutput(on_metrics), *others])
