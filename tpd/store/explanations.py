"""Saves and loads explanations as npz files."""

import json
from dataclasses import asdict
from pathlib import Path

import numpy as np

from tpd.core.beyond import Beyond
from tpd.core.explanation import Explanation
from tpd.guards.files import ANY, REAL, StoredArrays, blame, write_arrays
from tpd.guards.settings import number
from tpd.store.legends import LEAST_LIKELY, MOST_LIKELY, check_between, check_events, read_legend
from tpd.store.verdicts import read_verdicts, verdict_arrays

EXPLAINED = ("observations", "actions", "expected", "running", "support", "unknown")


def save_explanation(explanation: Explanation, path: Path) -> None:
    """Write an explanation as arrays, with its legend as JSON among them."""
    metadata = {"legend": asdict(explanation.legend), "discount": explanation.discount}
    arrays = {name: getattr(explanation, name) for name in EXPLAINED}
    if explanation.agent_value is not None:
        arrays["agent_value"] = explanation.agent_value
    arrays |= verdict_arrays(explanation.verdicts)
    if explanation.rollouts is not None:
        arrays["rollouts"] = explanation.rollouts.astype(np.float32)
    if explanation.beyond is not None:
        arrays |= {f"beyond_{name}": values for name, values in vars(explanation.beyond).items()}
    write_arrays(path, {"metadata": np.array(json.dumps(metadata)), **arrays})


def load_explanation(path: Path) -> Explanation:
    """Read what `save_explanation` wrote."""
    stored = StoredArrays(path)
    with blame(path):
        metadata = json.loads(str(stored.take("metadata", (), "U")))
        legend, discount = read_legend(metadata["legend"]), number("discount", metadata["discount"], 0, 1)
    expected = stored.take("expected", (None, None, len(legend.names)), REAL)
    check_events(stored, "expected", expected, legend)
    batch, running = expected.shape[:1], stored.take("running", expected.shape[:2], REAL)
    unknown = stored.take("unknown", expected.shape[:2], REAL)
    check_between(stored, "running", running, LEAST_LIKELY, MOST_LIKELY)
    check_between(stored, "unknown", unknown, 0, 1)
    return Explanation(
        stored.take("observations", (*batch, ...), ANY, finite=False),
        stored.take("actions", (*batch, ...), ANY, finite=False),
        expected,
        running,
        stored.take("support", batch, REAL, finite=False),
        legend,
        discount,
        stored.optional("agent_value", batch, REAL, finite=False),
        unknown,
        verdicts=read_verdicts(stored, len(expected), expected.shape[1], len(legend.names) + 1),
        rollouts=stored.optional("rollouts", (None, *expected.shape), REAL),
        beyond=_read_beyond(stored, len(expected)),
    )


def _read_beyond(stored: StoredArrays, batch: int) -> Beyond | None:
    mean = stored.optional("beyond_mean", (batch,), REAL, finite=False)
    if mean is None:
        return None
    return Beyond(
        mean,
        stored.take("beyond_draws", (None, batch), REAL, finite=False),
        stored.take("beyond_certain", (batch,), "b"),
        stored.take("beyond_unended", (batch,), "i"),
    )
