"""Roll out selected steps of the recorded episodes for the report, before anybody asks about them."""

import logging
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from tpd.answers.asked import Asked
from tpd.answers.foil import best, others
from tpd.predictors.simulation import Simulator
from tpd.run.expectations import Asking, reason_not_to_ask, simulator_of
from tpd.show.report.rolled_out import RolledOut
from tpd.show.report.rows import TAKEN
from tpd.sources.episodes import Recording
from tpd.sources.named_states import find_recorded
from tpd.store.saved_runs import SavedRun

log = logging.getLogger(__name__)
BEFORE_ENDS = (5, 15, 1, 25, 10)
"""Distances from the end of an episode, in steps; the first distance is used for every episode first."""
MOST_POINTS, MOST_STEPS = 6, 16
"""Upper bounds: turning points, and steps in total, that are rolled out."""
FOR_ROLLOUTS = 0.7
"""Fraction of the time budget; the rest goes to the drivers of the learned forecasts at these steps."""
ROLLOUTS = 50
"""Per action (the one taken, one foil); fewer than in `tpd-explain`, so that more steps fit the budget."""


def roll_out_ahead(
    run: SavedRun, points: pd.DataFrame | None, seconds: float, numbers: Sequence[int]
) -> list[RolledOut]:
    """Roll out the most informative steps of these episodes within `seconds`; sorted by episode, step."""
    recording = run.recording
    if recording is None or seconds <= 0:
        return []
    start, _ = find_recorded(run.env, recording, 0, 0)
    if reason := reason_not_to_ask(run, start, Asking()):
        log.info("the report has no rollouts: %s", reason)
        return []
    began, found = time.monotonic(), dict[tuple[int, int], RolledOut]()
    try:
        simulator = simulator_of(run)
        for episode, step in telling_steps(recording, points, numbers):
            if time.monotonic() - began > FOR_ROLLOUTS * seconds or len(found) == MOST_STEPS:
                break
            if (episode, step) not in found:
                found[episode, step] = _roll_out(run, simulator, recording, episode, step)
        for place, one in found.items():
            if time.monotonic() - began > seconds:
                break
            found[place] = replace(one, relies_on=_relies_on(run, recording, one))
    except Exception as error:  # the environment may raise anything
        reason = " ".join(str(error).split())
        log.warning("a rollout failed, so the report has rollouts for only %d steps: %s", len(found), reason)
    return [found[place] for place in sorted(found)]


def telling_steps(
    recording: Recording, points: pd.DataFrame | None, numbers: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """Yield (episode, step), the most informative first; a step may be repeated."""
    terminated = [i for i in numbers if recording.episodes[i].terminated[-1]]
    terminated.sort(key=lambda episode: len(recording.episodes[episode]))  # short ones are faster to replay
    for round_number, before in enumerate(BEFORE_ENDS):
        for episode in terminated:
            steps = len(recording.episodes[episode])
            if before <= steps:
                yield episode, steps - before
        if round_number == 0 and points is not None:
            for row in points[points["episode"].isin(numbers)].head(MOST_POINTS).to_dict("records"):
                yield int(row["episode"]), int(row["step"])


def _roll_out(
    run: SavedRun, simulator: Simulator, recording: Recording, episode: int, step: int
) -> RolledOut:
    """Roll out the action taken and, as its foil, the best other action by the learned explainer."""
    moment, taken = recording.moment(episode, step), recording.episodes[episode].action[step]
    instead = others(run.env, taken, moment.valid(run.env) if run.env.discrete else None)
    columns = instead if run.env.discrete else TAKEN + 1 + np.arange(len(instead))
    if len(instead) > 1:
        learned = run.explainer.explain(np.repeat(moment.observation[None], len(instead), axis=0), instead)
        chosen = best(learned, run.explainer.policy)
        instead, columns = instead[chosen : chosen + 1], columns[chosen : chosen + 1]
    shown = np.append(int(taken) if run.env.discrete else TAKEN, columns)
    actions = np.concatenate([np.asarray(taken)[None], instead])
    return RolledOut(episode, step, shown, simulator.explain(moment, actions, ROLLOUTS))


def _relies_on(run: SavedRun, recording: Recording, one: RolledOut) -> str:
    """What the learned forecast after the action taken relies on, as a sentence; empty if that is unknown."""
    moment, taken = recording.moment(one.episode, one.step), recording.episodes[one.episode].action[one.step]
    asked = Asked(
        explainer=run.explainer,
        env=run.env,
        observation=moment.observation[None],
        fact=taken,
        foil=None,
        names=(run.env.name_of_action(taken),),
        own=taken,
        met=run.states_met,
        rolled_out=(one.explanation[0],),
    )
    try:
        drivers = asked.drivers()
    except ValueError:  # no event is learned, or there are no recorded states
        return ""
    return "" if drivers.withheld else drivers.text
