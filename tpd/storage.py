"""Explainers on disk: plain arrays and JSON, so that loading one runs no code of the file's."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from tpd.envs import Environment
from tpd.explainer import Explainer
from tpd.explanation import Explanation
from tpd.outcomes import Legend
from tpd.pair_table import Edges, HasTable, PairTable
from tpd.policies.absent import AbsentPolicy
from tpd.policies.tabular import TabularPolicy
from tpd.posterior import CountedTable
from tpd.sources.recording import Recording
from tpd.types import Array, DiscretePolicy, Episodes, Policy, Predictor, Transitions

DESCRIPTION, ARRAYS = "explainer.json", "arrays.npz"
FORMAT = 2
EDGE = "edge_"
RECORDED = ("observation", "action", "next_observation", "reward", "terminated", "truncated")
EXPLAINED = ("observations", "actions", "expected", "running", "support", "unknown")


@runtime_checkable
class HasNetwork(Protocol):
    """A predictor that can be written down as a network."""

    def description(self) -> Mapping[str, Any]:
        """How the network is built, as plain values."""

    def arrays(self) -> Mapping[str, Array]:
        """Its weights."""


def check(predictor: Predictor) -> None:
    """Refuse a predictor that could not be saved."""
    if not isinstance(predictor, HasTable | HasNetwork):
        raise TypeError(f"{type(predictor).__name__} has no method `table`, so it cannot be saved")


def save(explainer: Explainer, env: Environment, folder: Path) -> None:
    """Write what the predictor knows, and for tables what the policy does in every state."""
    check(explainer.predictor)
    description: dict[str, Any] = {
        "format": FORMAT,
        "discount": explainer.policy.discount,
        "legend": asdict(explainer.legend),
    }
    if isinstance(explainer.predictor, HasNetwork):
        description["network"] = explainer.predictor.description()
        arrays = dict(explainer.predictor.arrays())
    else:
        assert isinstance(explainer.predictor, HasTable)
        arrays = _table_arrays(explainer.predictor.table(), explainer.policy, env)
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / ARRAYS, allow_pickle=False, **arrays)
    (folder / DESCRIPTION).write_text(json.dumps(description, indent=2))


def _table_arrays(table: PairTable, policy: Policy, env: Environment) -> dict[str, Array]:
    assert isinstance(policy, DiscretePolicy)
    states = np.arange(env.table_shape()[0])
    arrays = {
        "pairs": table.pairs,
        "expected": table.expected.astype(np.float32),
        "support": table.visits,
        "policy": policy.probabilities(states),
    }
    if table.into_unknown is not None:
        arrays["into_unknown"] = table.into_unknown.astype(np.float32)
    if table.edges is not None:
        arrays |= {f"{EDGE}{field.name}": getattr(table.edges, field.name) for field in fields(Edges)}
    values = policy.action_values(states)
    return arrays if values is None else arrays | {"action_values": values}


def load(folder: Path, features_extractor: Callable[..., Any] | None = None) -> Explainer:
    """Read an explainer that `save` wrote.

    The agent is not stored with a network, and neither is a features extractor, which is code.
    """
    description = json.loads((folder / DESCRIPTION).read_text())
    if description.get("format") != FORMAT:
        raise ValueError(f"{folder} has format {description.get('format')!r}, this is for {FORMAT}")
    with np.load(folder / ARRAYS, allow_pickle=False) as stored:
        arrays = dict(stored)
    predictor: Predictor
    policy: Policy
    if "network" in description:
        from tpd.learners.network_stored import read  # torch takes its time, and tables do without

        predictor = read(description["network"], arrays, features_extractor)
        policy = AbsentPolicy(description["discount"])
    else:
        policy = TabularPolicy(arrays["policy"], description["discount"], arrays.get("action_values"))
        edges = _edges(arrays)
        table = PairTable if edges is None else CountedTable
        predictor = table(
            arrays["policy"].shape[1],
            arrays["pairs"],
            arrays["expected"],
            arrays["support"],
            arrays.get("into_unknown"),
            edges,
        )
    return Explainer(predictor, policy, _legend(description["legend"]))


def _edges(arrays: Mapping[str, Array]) -> Edges | None:
    names = [field.name for field in fields(Edges)]
    if f"{EDGE}{names[0]}" not in arrays:
        return None
    return Edges(**{name: arrays[f"{EDGE}{name}"] for name in names})


def save_explanation(explanation: Explanation, path: Path) -> None:
    """Write an explanation as arrays, and its legend as JSON among them."""
    words = {"legend": asdict(explanation.legend), "discount": explanation.discount}
    arrays = {name: getattr(explanation, name) for name in EXPLAINED}
    if explanation.agent_value is not None:
        arrays["agent_value"] = explanation.agent_value
    np.savez_compressed(path, allow_pickle=False, words=np.array(json.dumps(words)), **arrays)


def load_explanation(path: Path) -> Explanation:
    """Read what `save_explanation` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        words = json.loads(str(stored["words"]))
        arrays = {name: stored[name] for name in EXPLAINED}
        value = stored.get("agent_value")
    return Explanation(
        **arrays, legend=_legend(words["legend"]), discount=words["discount"], agent_value=value
    )


def save_recording(recording: Recording, path: Path) -> None:
    """Write recorded episodes as arrays; their pictures one after the other, as bytes."""
    transitions = recording.episodes.transitions
    arrays: dict[str, Array] = {name: getattr(transitions, name) for name in RECORDED}
    arrays |= {
        "begins": recording.episodes.begins,
        "happened": recording.happened,
        "frames": np.frombuffer(b"".join(recording.frames), dtype=np.uint8),
        "frame_ends": np.cumsum([len(frame) for frame in recording.frames], dtype=np.int64),
    }
    np.savez_compressed(path, allow_pickle=False, **arrays)


def load_recording(path: Path) -> Recording:
    """Read what `save_recording` wrote."""
    with np.load(path, allow_pickle=False) as stored:
        transitions = Transitions(**{name: stored[name] for name in RECORDED})
        frames = np.split(stored["frames"], stored["frame_ends"])[:-1]  # the last is what is left: nothing
        return Recording(
            Episodes(transitions, stored["begins"]),
            stored["happened"],
            tuple(frame.tobytes() for frame in frames),
        )


def _legend(plain: Mapping[str, Any]) -> Legend:
    return Legend(
        names=tuple(plain["names"]),
        weights=tuple(plain["weights"]),
        partition=tuple(plain["partition"]),
        reward_bound=plain["reward_bound"],
        events=tuple(plain["events"]),
    )
