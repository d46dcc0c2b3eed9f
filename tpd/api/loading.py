"""`tpd.load`: reads saved explainers."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tpd.api.agents import AgentLike, check_same_world, trainer_of
from tpd.api.environments import EnvLike, environment
from tpd.api.events import Events, given_outcomes
from tpd.api.explainer import Explainer
from tpd.api.quality import Quality
from tpd.core.types import DiscretePolicy, Policy
from tpd.policies.stored import AbsentPolicy
from tpd.sources.episodes import Recording
from tpd.store import saved_runs
from tpd.store.run_descriptions import NotStoredError

UNCHECKED = (
    "events: functions cannot be stored, so tpd.load does not check that the functions passed to it are "
    "those that were learned"
)

OTHER_ACTIONS = 0.05
"""Maximum fraction of recorded actions that the agent may never take; rounding changes a few."""


def load(
    folder: str | Path,
    *,
    env: EnvLike | None = None,
    events: Events = None,
    agent: AgentLike | None = None,
    trust: Sequence[str] = (),
) -> Explainer:
    """Load an explainer that `Explainer.save` or `tpd-run` wrote, with its agent; runs no code from it.

    env, events, agent: functions cannot be stored, so pass them again; an error names the one that is
        missing.
    trust: your own modules that define the environment, events or agent, which may be imported.

    >>> import tpd
    >>> tpd.load("nowhere")
    Traceback (most recent call last):
    ValueError: nowhere: not a folder that Explainer.save or tpd-run has written
    """
    path = Path(folder)
    if not (path / saved_runs.EXPLAINER).is_dir():
        raise ValueError(f"{path}: not a folder that Explainer.save or tpd-run has written")
    try:
        run = saved_runs.read(
            path,
            trust,
            env=None if env is None else environment(env),
            outcomes=None if events is None else given_outcomes(events),
            policy=None if agent is None else lambda env: trainer_of(agent, env, True, None).policy,
        )
        outcomes, policy = run.outcomes(), run.explainer.policy
        if isinstance(policy, AbsentPolicy):
            raise NotStoredError(f"the agent of this run cannot be loaded ({policy.reason})", "agent")
    except NotStoredError as error:
        raise ValueError(
            f"{error}: pass {error.what} again, tpd.load({str(folder)!r}, {error.what}=...)"
        ) from error
    if env is not None and run.about is not None and run.about.env.kind == "environment":
        stored, given = run.about.env.id.rpartition(":")[2], run.env.registered_id
        check_same_world(stored, given, f"the run is about {stored}, but env is {given}", "omit env")
    if agent is not None and run.recording is not None:
        _require_same_agent(policy, run.recording)
    explainer = Explainer(policy, run.env, outcomes, run.explainer.predictor.horizon)
    explainer._adopt(run, Quality.read(path))
    if events is not None:
        explainer.notes = (*explainer.notes, UNCHECKED)
    return explainer


def _require_same_agent(policy: Policy, recording: Recording) -> None:
    """Refuse an agent that would never take many of the recorded actions; only known for discrete actions."""
    if not isinstance(policy, DiscretePolicy):
        return
    steps = recording.episodes.transitions
    chances = policy.probabilities(steps.observation)[np.arange(len(steps)), steps.action]
    if (other := float((chances <= 0).mean())) > OTHER_ACTIONS:
        raise ValueError(
            f"agent: another agent was explained; this one takes other actions at {100 * other:.0f} % of the "
            "recorded steps"
        )
