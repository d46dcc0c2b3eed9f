"""Finished runs, read from their folders."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from omegaconf import DictConfig

from tpd.core.outcomes import OutcomeSet
from tpd.envs import Environment
from tpd.envs.tabular import TabularModel
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import HasTable
from tpd.predictors.replayed.counts import counted_model
from tpd.sources.episodes import Recording
from tpd.store import explainers
from tpd.store.recordings import load_recording
from tpd.store.stored_configs import instantiate_group, make_env, read_config

CONFIG, EXPLAINER, EPISODES = "config.yaml", "explainer", "episodes.npz"


@dataclass(frozen=True)
class SavedRun:
    """A finished run: the explainer, the world it speaks of, and episodes to look at."""

    config: DictConfig
    explainer: Explainer
    """Its policy is absent where it could not be written down, or needs a module that is not trusted."""
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
        made = instantiate_group(self.config, "outcomes", self.trusted)
        outcomes = made(self.env) if isinstance(made, partial) else made
        assert isinstance(outcomes, OutcomeSet)
        return outcomes


def read(folder: Path, trusted: Sequence[str] = ()) -> SavedRun:
    """Read the folder of a run; `trusted` are modules of which its environment may be made."""
    explainers.read_description(folder / EXPLAINER)  # first, for it says which version wrote the run
    config = read_config(folder / CONFIG)
    env, episodes = make_env(config, trusted), folder / EPISODES
    explainer = explainers.load(folder / EXPLAINER, env=env, trusted=trusted)
    recording = load_recording(episodes) if episodes.exists() else None
    outcomes = len(explainer.legend.names)
    if recording is not None and recording.happened.shape[1] != outcomes:
        shown = recording.happened.shape[1]
        raise ValueError(f"{episodes}: shows {shown} outcomes, and {outcomes} are explained")
    return SavedRun(config, explainer, env, recording, tuple(trusted))
