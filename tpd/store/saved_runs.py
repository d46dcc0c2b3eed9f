"""Reads finished runs from their folders."""

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
"""Files of a run; the config is for people to read."""
RESULT, FORECASTS = "result.txt", "forecasts.json"
"""Files with the quality of the explanations."""


@dataclass(frozen=True)
class SavedRun:
    """A finished run: the explainer, its environment, and recorded episodes."""

    name: str
    explainer: Explainer
    """Its policy is absent if it could not be stored, or needs a module that is not trusted."""
    env: Environment
    recording: Recording | None
    outcomes: Callable[[], OutcomeSet]
    """Builds the outcomes with their functions; raises an UntrustedError if their modules are not trusted."""
    about: RunDescription | None = None
    """The stored description; None if nothing was learned, or it could not be stored."""

    @property
    def maps(self) -> Mapping[str, str]:
        """Which state field is used for which axis of a map; overrides the layout of the environment."""
        return {} if self.about is None else self.about.maps

    def model(self) -> TabularModel | None:
        """The transition table: the environment's own, or as counted; None if there is none."""
        if self.env.model is not None or not isinstance(self.explainer.predictor, HasTable):
            return self.env.model
        edges = self.explainer.predictor.table().edges
        return None if edges is None else counted_model(edges, self.outcomes(), *self.env.table_shape())

    def states_met(self, enough: int) -> StatesMet:
        """States that the agent visits: from the recorded episodes or, if they are too few, from new ones.

        A ValueError gives the reason if there are none.
        """
        playable = self.env.playable and not isinstance(self.explainer.policy, AbsentPolicy)
        if self.recording is not None and (len(self.recording.episodes) >= enough or not playable):
            return recorded_states(self.recording)
        if not playable:
            raise ValueError(
                f"no states of {self.env.id} are known: no episodes are recorded, and none can be played"
            )
        return self._played

    @cached_property
    def _played(self) -> StatesMet:
        return played_states(self.env, self.explainer.policy)

    def dynamics(self) -> TabularDynamics | None:
        """The dynamics behind a table's answers, counted or the environment's; None for other predictors."""
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

    trusted: modules that may be imported for its environment, outcomes and policy.
    env, outcomes, policy: used instead of the stored ones, or of those that could not be stored.
    """
    explainers.read_description(folder / EXPLAINER)  # first, since it checks the version that wrote the run
    about = run_descriptions.read(folder / EXPLAINER)
    env, episodes = env or about.env.make(trusted), folder / EPISODES
    agent = None if policy is None else policy(env)
    explainer = explainers.load(folder / EXPLAINER, env=env, trusted=trusted, outcomes=outcomes, policy=agent)
    explainer.predictor = as_far_as_possible(explainer.predictor)
    recording = load_recording(episodes) if episodes.exists() else None
    names = tuple(outcome.name for outcome in about.outcomes.outcomes)
    if names != explainer.legend.names:
        path = folder / EXPLAINER / run_descriptions.RUN
        raise ValueError(f"{path}: the outcomes {', '.join(names)} are not those of the explainer")
    if recording is not None:
        with blame(episodes):
            require_fit(recording, env, [(each.low, each.high) for each in about.outcomes.outcomes])
    if outcomes is not None and outcomes.legend.names != names:
        given = ", ".join(outcomes.legend.names)
        raise ValueError(f"events: expected those of the run, {', '.join(names)}, got {given}")
    make = partial(about.outcomes.make, trusted) if outcomes is None else lambda: outcomes
    return SavedRun(about.title, explainer, env, recording, make, about)
