"""`tpd.Explainer`: an agent, its environment, and the events to predict."""

import logging
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tpd.answers.answer import Answer
from tpd.api.agents import AgentLike, explained_environment, trainer_of
from tpd.api.behaviour import foil_of
from tpd.api.environments import EnvLike, check_batch, check_moment, experiment, one_observation
from tpd.api.episodes import PlayedEpisode, PlayedEpisodes
from tpd.api.events import Events, outcomes_of
from tpd.api.quality import UNLEARNED, Quality
from tpd.api.threads import one_thread
from tpd.core.explanation import Explanation
from tpd.core.observations import pack
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import RecurrentPolicy, Trainer
from tpd.evaluation.played_return import PlayedReturn, episode_returns
from tpd.guards.atomic import atomic_write
from tpd.guards.settings import shown, whole_number
from tpd.predictors import explainer as predictors
from tpd.predictors.simulation import PRECISION, Simulator
from tpd.predictors.unlearned import Unlearned
from tpd.run import experiment as runs
from tpd.run.answering import answered
from tpd.run.configs import composed
from tpd.run.expectations import Asking, Expectations
from tpd.run.fact_and_foil import compared_actions
from tpd.run.parts import Parts, build, settings
from tpd.run.results import PLOTS, RELIABILITY, Findings, live_run, save_learned
from tpd.show.progress import ProgressBars
from tpd.sources.episodes import picture_of, record
from tpd.sources.forbidden_actions import forbidden_actions
from tpd.sources.moments import Moment
from tpd.sources.named_states import NamedState
from tpd.store.recordings import save_recording
from tpd.store.saved_runs import EPISODES, SavedRun
from tpd.tracking.runs import ENV, EXPLAINER, POLICY, PROGRAM, SEED, Run

log = logging.getLogger(__name__)

TABULAR = ("explainer=replayed", "training=after")
PATIENCE = 1.0
"""Seconds before a progress bar appears."""
ENOUGH_EPISODES = 5
"""Episodes needed to compare their mean return with the expected one."""
UNTOLD = "nothing is learned yet, and the simulator cannot be used: {}; call learn() first"


class Explainer:
    """Explains what an agent does, by rollouts of the simulator and, after `learn`, by a learned predictor.

    agent: the result of `tpd.load_agent`, a live Stable-Baselines3 model, a policy, or a function of
        observations [batch, ...] to actions.
    env: an id, a spec, or a function that makes the environment; by default that of the agent.
    events: name -> function of `tpd.Transitions`, true where the event happens; found by default.
    horizon: number of steps to predict.
    vec_normalize, deterministic: for a live model, as for `tpd.load_agent`.
    tracking: an MLflow store, for example "sqlite:///mlflow.db", where `learn` tracks its run.

    >>> import tpd
    >>> def right_half(t):
    ...     return t.next_observation[:, 0] > 0
    >>> explainer = tpd.Explainer(
    ...     lambda observations: observations[:, 2] > 0, env="CartPole-v1", events={"right half": right_half}
    ... )
    >>> moment = explainer.play(seeds=[0])[0][10]
    >>> explainer.why(moment).table.loc["first right half", "fact"].item()
    1.0
    """

    def __init__(
        self,
        agent: AgentLike,
        env: EnvLike | None = None,
        events: Events = None,
        horizon: int = 30,
        *,
        vec_normalize: Any = None,
        deterministic: bool = True,
        tracking: str | None = None,
    ) -> None:
        self.env = explained_environment(agent, env)
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self._trainer: Trainer = trainer_of(agent, self.env, deterministic, vec_normalize)
        found = outcomes_of(events, self.env, self._trainer.policy)
        self.outcomes: OutcomeSet = found.outcomes
        self.notes = found.notes
        """Which events were found, and how they were checked."""
        for note in self.notes:
            log.info("%s", note)
        self.env.check_info(self.outcomes.info_keys)
        self.tracking = tracking
        self.quality = Quality((UNLEARNED,))
        """How good the learned explanations are, by fresh episodes."""
        self._warned = False
        unlearned = Unlearned(self.horizon, self.outcomes.width)  # only the simulator can answer
        explainer = predictors.Explainer(unlearned, self._trainer.policy, self.outcomes.legend)
        self._run = SavedRun(self.env.id, explainer, self.env, None, lambda: self.outcomes)

    def _adopt(self, run: SavedRun, quality: Quality) -> None:
        """Use the predictor of a run from now on, and its episodes if it has any."""
        self._run = replace(run, recording=run.recording or self._run.recording)
        self.quality = quality

    @property
    def policy(self) -> Any:
        """The explained policy."""
        return self._run.explainer.policy

    def play(
        self, seeds: Sequence[int] = range(20), *, steps: int | None = None, progress: bool = True
    ) -> PlayedEpisodes:
        """Play one episode per seed with the agent; returns them sorted by return, lowest first.

        seeds: of the environment's reset.
        steps: upper bound on the steps of each episode.
        """
        if not isinstance(seeds, Iterable):
            raise TypeError(
                f"seeds: expected a list of seeds such as [0, 1] or range(20), got {shown(seeds)}"
            )
        chosen = [whole_number("seed", seed, at_least=0) for seed in seeds]
        if not chosen:
            raise ValueError("seeds: expected at least one seed")
        with one_thread(), ProgressBars(progress and len(chosen) > 1) as bars:
            advance = bars.counter("episodes", len(chosen))
            recording = record(self.env, self.policy, self.outcomes, chosen, steps, progress=advance)
        forbidden = forbidden_actions(self.env, recording.episodes.transitions, self.outcomes)
        if forbidden and not self._warned:  # only once, even if episodes are played again
            log.warning(forbidden)
            self._warned = True
        simulator = partial(Simulator, self.env, self.policy, self.outcomes, horizon=self.horizon)
        played = PlayedEpisodes(recording, self.outcomes.legend, simulator)
        self._run = replace(self._run, recording=played.recording)  # sorted, so that numbers agree
        if steps is None and len(chosen) >= ENOUGH_EPISODES:
            expected = getattr(self._trainer, "expected_return", None)
            if warning := PlayedReturn.of(episode_returns(recording.episodes), expected).warning:
                log.warning(warning)
        return played

    def why(
        self,
        moment: Moment | Any,
        action: Any = None,
        foil: Any = None,
        *,
        rollouts: int | None = None,
        precision: float = PRECISION,
        progress: bool = True,
    ) -> Answer:
        """Explain why the agent takes its action at a moment, or for an observation, rather than the foil.

        A moment is answered by rollouts, if the simulator can be forked; an observation by the learned
        predictor.
        action, foil: by name or number; by default the agent's own action, and the best other action.
            If actions consist of parts, `{part: choice}` changes these parts and keeps the others.
            The foil may also be a `tpd.Behaviour`, or a list of numbered actions to take in turn.
        rollouts: per action; 0: use the learned predictor; None: as many as the precision needs.
        precision: half the largest width that the 90 % band of an event may have.
        progress: whether to show a progress bar if the answer takes longer than a second.
        """
        with one_thread(), ProgressBars(progress, after=PATIENCE) as bars:
            asking = Asking(rollouts, precision, bars.counter("steps of the simulator", None))
            return self._why(self._state(moment), action, foil, asking)

    def _why(self, state: NamedState, action: Any, foil: Any, asking: Asking) -> Answer:
        expectations = Expectations(self._run, state, asking)
        if not expectations.simulated and not self._run.explainer.informed:
            raise ValueError(UNTOLD.format(expectations.reason))
        own = None if state.moment is None else state.moment.taken
        own = self.policy.action(state.observation)[0] if own is None else own
        chosen = own if action is None else np.asarray(self.env.action(action, own))
        return answered(*compared_actions(expectations, own, chosen, foil_of(foil, self.env)))

    def _state(self, asked: Moment | Any) -> NamedState:
        if isinstance(asked, Moment):
            check_moment(self.env, asked)
            return NamedState(asked.observation[None], asked.name, picture_of(self.env, asked), asked)
        if isinstance(self.policy, RecurrentPolicy):
            raise ValueError(
                "the agent has a hidden state, which an observation does not contain: ask about a moment "
                "of an episode, for example explainer.play(seeds=[0])[0][10]"
            )
        if isinstance(asked, PlayedEpisode):
            raise TypeError("pass a moment of the episode, not all of it: for example episode[10]")
        if isinstance(asked, PlayedEpisodes):
            raise TypeError("pass a moment of one episode, not all episodes: for example episodes[0][10]")
        observation = one_observation(self.env, asked)
        return NamedState(observation, self.env.name_of_state(observation[0]), None)

    def learn(
        self,
        steps: int = 200_000,
        seed: int = 0,
        *,
        overrides: str | Sequence[str] = (),
        progress: bool = True,
    ) -> "Explainer":
        """Learn to explain from this many transitions, then judge the predictor by fresh episodes.

        overrides: settings of the command line, for example "explainer=network" or "evaluation.seconds=30".
        """
        overrides = [overrides] if isinstance(overrides, str) else overrides
        parts = self._build(steps, seed, overrides)
        with one_thread():
            findings = self._learn(parts, progress)
        self._adopt(live_run(parts, None), Quality.of(findings))
        return self

    def _learn(self, parts: Parts, progress: bool) -> Findings:
        if self.tracking is not None:
            return self._learn_tracked(parts, progress)
        with ProgressBars(progress) as bars:
            runs.learn(parts, Run(), bars)
            return runs.with_return(parts, runs.judge(parts, bars), None)

    def _build(self, steps: int, seed: int, overrides: Sequence[str]) -> Parts:
        """Build the parts of a run as the command line does."""
        chosen = [f"experiment={experiment(self.env)}"]
        if self.env.tabular:
            truth = "exact" if self.env.model is not None else "monte_carlo"
            chosen += [*TABULAR, f"evaluation={truth}"]
        chosen += [f"seed={seed}", f"training.steps={steps}", f"explainer.horizon={self.horizon}"]
        config = composed([*chosen, *overrides])
        return build(config, env=self.env, trainer=self._trainer, outcomes=self.outcomes)

    def _learn_tracked(self, parts: Parts, progress: bool) -> Findings:
        """Do a whole run, tracked in the store, with its folder below `outputs`."""
        from tpd.tracking.mlflow_runs import MlflowTracking
        from tpd.tracking.outbox import open_run

        folder = Path("outputs") / "python" / time.strftime("%Y-%m-%d_%H-%M-%S")
        assert self.tracking is not None
        tracking = MlflowTracking(uri=self.tracking, experiment=parts.about.name)
        policy = type(self.policy).__name__
        tags = {ENV: self.env.id, POLICY: policy, EXPLAINER: "python", SEED: str(parts.seed)}
        tags[PROGRAM] = Path(sys.argv[0]).name or "python"
        with open_run(tracking, folder, parts.about.title, settings(parts.config), tags) as tracked:
            findings = runs.run(parts, folder, tracked, progress=progress, overview=parts.overview)
        print(f"plots, report and explainer: {folder}; in MLflow: {tracking.ui_command()}")
        return findings

    def explain(self, observations: Any, actions: Any = None, *, draws: int = 0) -> Explanation:
        """Learned explanations for a batch of observations; by default for the agent's own actions.

        actions: one for each observation, by number or name.
        draws: number of posterior samples, for example 59, from which bands are made; 0: no bands.
        """
        explainer = self._run.explainer
        if not explainer.informed:
            raise ValueError("nothing is learned yet: call learn() first, or ask why() about a moment")
        given = pack(observations)
        if not isinstance(self.policy, RecurrentPolicy):  # else they include the hidden state
            check_batch(self.env, given)
        if actions is not None and np.asarray(actions).dtype.kind == "U":
            actions = np.array([self.env.action(str(name)) for name in actions])
        with one_thread():
            explanation = explainer.explain(given, actions, draws)
        return replace(explanation, action_names=self.env.numbered_action_names)

    def save(self, folder: str | Path) -> None:
        """Write the agent, the predictor and its quality to a folder, for `tpd.load` and `tpd-explain`.

        The episodes played last are included, so that their moments can be asked about.
        """
        if self._run.about is None:
            raise ValueError("there is nothing to save: nothing is learned yet, call learn() first")
        quality = self.quality
        save_learned(self._run, quality.lines, quality.forecasts, quality.skill, Path(folder))
        if quality.picture is not None:
            with atomic_write(Path(folder) / PLOTS / RELIABILITY) as unfinished:
                unfinished.write_bytes(quality.picture)
        if self._run.recording is not None:
            save_recording(self._run.recording, Path(folder) / EPISODES)

    def __repr__(self) -> str:
        learned = "has learned" if self._run.explainer.informed else "has learned nothing yet"
        return f"<Explainer of {self.env.id}: {len(self.outcomes.outcomes)} outcomes, {learned}>"
