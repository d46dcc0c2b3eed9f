"""What a run left behind, read again to be asked further: arrays, JSON and YAML, and no code of theirs.

A stored config names classes and functions. They are called only if they are defined here, or in
modules that the present user trusts.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, OmegaConf

from tpd import storage
from tpd.envs import Environment
from tpd.envs.tabular import TabularModel
from tpd.explainer import Explainer
from tpd.outcomes import OutcomeSet
from tpd.pair_table import HasTable
from tpd.resolve import counted_model
from tpd.sources.recording import Recording

CONFIG, EXPLAINER, EPISODES = "config.yaml", "explainer", "episodes.npz"
OURS = ("tpd.envs", "tpd.outcomes")


class UntrustedError(ValueError):
    """A stored config that wants code of strangers to run."""


@dataclass(frozen=True)
class Kept:
    """A finished run: the explainer, the world it speaks of, and episodes to look at."""

    config: DictConfig
    explainer: Explainer
    """Its policy is absent where the agent was a network: the recording has what it did."""
    env: Environment
    recording: Recording | None
    trusted: tuple[str, ...] | None = ()
    """The modules of which its parts may be made, besides ours; None for a run of this very process."""

    @property
    def name(self) -> str:
        return f"{self.config.name}, seed {self.config.seed}"

    def model(self) -> TabularModel | None:
        """The dynamics: the environment's own, or as they were counted; None where they are not known."""
        if self.env.model is not None or not isinstance(self.explainer.predictor, HasTable):
            return self.env.model
        edges = self.explainer.predictor.table().edges
        return None if edges is None else counted_model(edges, self.outcomes(), *self.env.table_shape())

    def outcomes(self) -> OutcomeSet:
        """The outcomes explained, with their functions."""
        made = made_of(self.config, "outcomes", self.trusted)
        outcomes = made(self.env) if isinstance(made, partial) else made
        assert isinstance(outcomes, OutcomeSet)
        return outcomes


def read(folder: Path, trusted: Sequence[str] = ()) -> Kept:
    """Read the folder of a run; `trusted` are modules of which its environment may be made."""
    config = OmegaConf.load(folder / CONFIG)
    assert isinstance(config, DictConfig)
    env = made_of(config, "env", trusted)
    assert isinstance(env, Environment)
    episodes = folder / EPISODES
    recording = storage.load_recording(episodes) if episodes.exists() else None
    return Kept(config, storage.load(folder / EXPLAINER), env, recording, tuple(trusted))


def made_of(config: DictConfig, group: str, trusted: Sequence[str] | None = ()) -> Any:
    """Make a group of a stored config, if that needs no code of strangers."""
    for name in _imported(OmegaConf.to_container(config[group], resolve=True)):
        if trusted is not None and not _ours(name, trusted):
            raise UntrustedError(
                f"the {group} of this run needs {name!r}, which is not of tpd; "
                f"if you trust it, say so: trust=[{name.split('.')[0]}]"
            )
    return instantiate(config[group], _convert_="all")


def _imported(plain: Any) -> Iterator[str]:
    """What making this would import."""
    if isinstance(plain, dict):
        for key, value in plain.items():
            if key == "_target_":
                yield str(value)
            elif key == "id" and ":" in str(value):  # Gymnasium imports what stands before the colon
                yield str(value).split(":")[0]
            yield from _imported(value)
    elif isinstance(plain, list):
        for value in plain:
            yield from _imported(value)


def _ours(name: str, trusted: Sequence[str]) -> bool:
    """Whether the name lies in a module of ours or trusted, and so does what it stands for."""
    if not _within(name, (*OURS, *trusted)):
        return False
    defined_in = str(getattr(get_object(name), "__module__", name))  # not what a module of ours imported
    return _within(defined_in, (*OURS, *trusted))


def _within(name: str, modules: Sequence[str]) -> bool:
    return any(name == module or name.startswith(f"{module}.") for module in modules)
