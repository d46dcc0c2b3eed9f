"""Finished runs, read from their folders."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Policy
from tpd.envs import Environment
from tpd.envs.tabular import TabularModel
from tpd.guards.files import blame
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import HasTable
from tpd.predictors.replayed.counts import counted_model
from tpd.predictors.tabular_dynamics import TabularDynamics
from tpd.sources.episodes import Recording
from tpd.sources.states_met import StatesMet, played_states, recorded_states
from tpd.store import explainers, run_descriptions
from tpd.store.learned_models import as_far_as_possible
from tpd.store.recordings import load_recording, require_fit
from tpd.store.run_descriptions import RunDescription

CONFIG, EXPLAINER, EPISODES = "config.yaml", "explainer", "episodes.npz"
"""The config is there to be read by people."""
RESULT, FORECASTS = "result.txt", "forecasts.json"
"""How good the explanations turned out to be."""


@dataclass(frozen=True)
class SavedRun:
    """A finished run: the explainer, the world it speaks of, and episodes to look at."""

    name: str
    explainer: Explainer
    """Its policy is absent where it could not be written down, or needs a module that is not trusted."""
    env: Environment
    recording: Recording | None
    outcomes: Callable[[], OutcomeSet]
    """The outcomes explained, with their functions; an UntrustedError where these are of strangers."""
    about: RunDescription | None = None
    """What is stored beside the explainer; None where nothing was learned that could be."""

    @property
    def maps(self) -> Mapping[str, str]:
        """Which field of a state goes where on a map, if not as the environment says."""
        return {} if self.about is None else self.about.maps

    def model(self) -> TabularModel | None:
        """The dynamics: the environment's own, or as they were counted; None where they are not known."""
        if self.env.model is not None or not isinstance(self.explainer.predictor, HasTable):
            return self.env.model
        edges = self.explainer.predictor.table().edges
        return None if edges is None else counted_model(edges, self.outcomes(), *self.env.table_shape())

    def states_met(self, enough: int) -> StatesMet:
        """The states that the agent meets: of the recorded episodes or, if these are too few, of fresh ones.

        A ValueError says why there are none.
        """
        playable = self.env.playable and not isinstance(self.explainer.policy, AbsentPolicy)
        if self.recording is not None and (len(self.recording.episodes) >= enough or not playable):
            return recorded_states(self.recording)
        if not playable:
            raise ValueError(
                f"no states of {self.env.id} are at hand: no episodes are recorded, and none can be played"
            )
        return self._played

    @cached_property
    def _played(self) -> StatesMet:
        return played_states(self.env, self.explainer.policy)

    def dynamics(self) -> TabularDynamics | None:
        """What the answers of a table follow from: as counted, or the environment's own; None for others."""
        if not isinstance(self.explainer.predictor, HasTable):
            return None
        table = self.explainer.predictor.table()
        if table.edges is not None:
            return TabularDynamics.counted(table.edges, table.num_actions)
        model = self.env.model if np.isinf(table.visits).all() else None
        return None if model is None else TabularDynamics.known(model, self.outcomes())


def read(
    folder: Path,
    trusted: Sequence[str] = (),
    env: Environment | None = None,
    outcomes: OutcomeSet | None = None,
    policy: Callable[[Environment], Policy] | None = None,
) -> SavedRun:
    """Read the folder of a run.

    trusted: modules that its environment, outcomes and policy may be of.
    env, outcomes, policy: taken instead of those that are stored, or could not be.
    """
    explainers.read_description(folder / EXPLAINER)  # first, for it says which version wrote the run
    about = run_descriptions.read(folder / EXPLAINER)
    env, episodes = env or about.env.make(trusted), folder / EPISODES
    explainer = explainers.load(
        folder / EXPLAINER,
        env=env,
        trusted=trusted,
        outcomes=outcomes,
        policy=None if policy is None else policy(env),
    )
    explainer.predictor = as_far_as_possible(explainer.predictor)
    recording = load_recording(episodes) if episodes.exists() else None
    names = tuple(outcome.name for outcome in about.outcomes.outcomes)
    if names != explainer.legend.names:
        path = folder / EXPLAINER / run_descriptions.RUN
        raise ValueError(f"{path}: has the outcomes {', '.join(names)}, and others are explained")
    if recording is not None:
        with blame(episodes):
            require_fit(recording, env, [(each.low, each.high) for each in about.outcomes.outcomes])
    if outcomes is not None and outcomes.legend.names != names:
        given = ", ".join(outcomes.legend.names)
        raise ValueError(f"the outcomes given are {given}, and {', '.join(names)} are explained")
    make = partial(about.outcomes.make, trusted) if outcomes is None else lambda: outcomes
    return SavedRun(about.title, explainer, env, recording, make, about)
