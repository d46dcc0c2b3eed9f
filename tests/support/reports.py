"""Reports of a small run, and a reader of the file of a report."""

import base64
import gzip
import json
import re
from pathlib import Path
from typing import Any

import numpy as np

from tests.support import small_mdp
from tests.support.learning import batches
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import Array, FloatArray, Predictor, concatenate
from tpd.envs import Environment
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.show.report.contents import Contents
from tpd.show.report.packing import LEVELS, Quantised
from tpd.sources.episodes import Recorder
from tpd.store.run_descriptions import describe_outcomes
from tpd.store.saved_runs import SavedRun

HOSTILE = "</script><script>alert('&')</script>"


def small(
    action_names: tuple[str, ...] = (),
    event_name: str = "odd",
    name: str = "small",
    counting: type[ReplayedFHTD] | None = None,
) -> SavedRun:
    """A run in the small environment, explained exactly or by a method that counts transitions."""
    env = Environment("SmallMDP-v0", action_names=action_names)
    policy = small_mdp.policy()
    outcomes = OutcomeSet(
        [event(event_name, small_mdp.odd, 1.0), event("even", small_mdp.even, 0.0)],
        partition=True,
        accounts_for_reward=True,
    )
    predictor: Predictor = ExactSolution(env, policy, outcomes, horizon=5)
    if counting is not None:
        predictor = counting(env, policy, outcomes, horizon=5)
        predictor.update(concatenate(list(batches(policy, 5_000))))
    explainer = Explainer(predictor, policy, outcomes.legend)
    recording = Recorder(episodes=5, steps=10).record(env, policy, outcomes)
    return SavedRun(f"{name}, seed 0", explainer, env, recording, describe_outcomes(outcomes).make)


def read(path: Path) -> Contents:
    """Read the contents of a report from its file."""
    text = path.read_text(encoding="utf-8")
    metadata, arrays = unpack(base64.b64decode(_block(text, "data")))
    return Contents(metadata, arrays, tuple(map(base64.b64decode, _block(text, "pictures").split())))


def _block(text: str, name: str) -> str:
    found = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', text, re.DOTALL)
    assert found is not None, f"there is no script element {name!r}"
    return found[1]


def unpack(packed: bytes) -> tuple[dict[str, Any], dict[str, Array]]:
    """The metadata and arrays packed by `pack`."""
    plain = gzip.decompress(packed)
    begin = 4 + int.from_bytes(plain[:4], "little")
    metadata = json.loads(plain[4:begin])
    arrays = {}
    for name, place in metadata.pop("arrays").items():
        count = int(np.prod(place["shape"]))
        flat = np.frombuffer(plain, f"<{place['kind']}", count, begin + place["begin"])
        arrays[name] = flat.reshape(place["shape"])
    return metadata, arrays


def dequantised(quantised: Quantised) -> FloatArray:
    """[kind, ...]: the values, each within half a level."""
    levels = quantised.planes[0] + 256.0 * quantised.planes[1]
    shape = (-1,) + (1,) * (levels.ndim - 1)
    return np.asarray(quantised.low.reshape(shape) + levels / LEVELS * quantised.span.reshape(shape))
