"""Loads the networks of baseline methods, with checks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpd.core.types import Predictor
from tpd.guards.files import ANY, REAL, WHOLE, StoredArrays, blame
from tpd.guards.settings import whole_number
from tpd.store.learned_models import MOST_STEPS
from tpd.store.verdicts import LIMIT, read_verdicts

RIVAL = "rival"


def rival_outputs(stored: StoredArrays) -> int:
    """Number of outputs of the network."""
    return len(stored.take("step", (None,), WHOLE))


def read_rival(
    folder: Path, description: Mapping[str, Any], stored: StoredArrays, num_actions: int, width: int
) -> Predictor:
    """Load the described network from these arrays, for `width` outcomes."""
    from tpd.predictors.rivals.networks.predictor import read  # torch is slow to import

    with blame(folder):
        horizon = whole_number("horizon", description["horizon"], at_least=1, at_most=MOST_STEPS)
    step = stored.take("step", (None,), WHOLE)
    stored.check("step", (step >= 0) & (step < horizon))
    column = stored.take("column", step.shape, WHOLE)
    stored.check("column", (column >= 0) & (column < width - 1))
    stored.take("factor", step.shape, REAL)
    tried = stored.take("tried", (num_actions,), WHOLE)
    stored.check("tried", tried >= 0)
    limits = read_verdicts(stored, 1, horizon, width, LIMIT)
    with blame(folder):
        if limits is None:
            raise ValueError(f"there are no arrays {LIMIT}..., which say what the method cannot predict")
        return read(description, stored.every(ANY), limits)
