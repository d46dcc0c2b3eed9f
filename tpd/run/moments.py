"""Suggests moments of a run to ask about, for a question that names none."""

import shlex
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

from tpd.answers.sentences.formatting import percent, worth
from tpd.answers.sentences.turning import turning_point_in_words
from tpd.answers.turning_points import turning_points
from tpd.answers.turning_search import LEAST_JUMP, search_turning_points
from tpd.evaluation.played_return import episode_returns
from tpd.predictors.pair_table import HasTable
from tpd.run.expectations import Asking, reason_not_to_ask, simulator_of
from tpd.run.question import Question
from tpd.sources.episodes import Recording
from tpd.sources.named_states import find_recorded
from tpd.store.saved_runs import SavedRun

MOST_MOMENTS, MOST_OF_ONE = 6, 2
"""Upper bounds on moments listed: in total, and per episode."""
LEAST_IN_TABLE = 0.05
"""Smallest change of probability that counts in a table, whose forecasts have less noise than rollouts."""
BY_ROLLOUTS = "by rollouts"
REPEATED = ("store", "trust", "rollouts", "precision")
"""Settings that the suggested commands repeat if they were given."""


@dataclass(frozen=True)
class WorthAsking:
    """A step of a recorded episode, and why it is worth asking about."""

    episode: int
    step: int
    text: str


def worth_asking(question: Question, run: SavedRun) -> str:
    """List the moments worth asking about, each with the command that asks."""
    recording = run.recording
    assert recording is not None
    found, how = find_moments(run, Asking(question.rollouts, question.precision), question.seconds)
    command = shlex.join(["tpd-explain", f"run={question.run}", *_repeated(question)])
    if not found:
        reason = "this explainer's method does not predict first occurrences, so no steps are suggested"
        if how == BY_ROLLOUTS or run.explainer.limits is None:
            longer = (
                f" within {question.seconds:g} s; seconds=... searches longer" if how == BY_ROLLOUTS else ""
            )
            change = f"changed the probability of a decisive event by {percent(_least(run))} or more"
            reason = f"no step before the last of a recorded episode was found that {change} ({how}{longer})"
        any_step = f"  {command} episode=0 step={_last_of(recording, 0)}"
        return f"{run.name}: {reason}. To ask about any step:\n{any_step}"
    lines = [f"{run.name}: moments worth asking about ({how})"]
    for one in found:
        lines += [f"episode {one.episode}, {one.text}", f"  {command} episode={one.episode} step={one.step}"]
    return "\n".join([*lines, *_others(recording, {one.episode for one in found}, command)])


def _others(recording: Recording, named: set[int], command: str) -> list[str]:
    """The recorded episodes of which no moment is listed, lowest return first, and how to ask about one."""
    returns = episode_returns(recording.episodes)
    left = sorted({*range(len(recording.episodes))} - named, key=lambda number: float(returns[number]))
    if not left:
        return []
    each = ", ".join(f"{number} ({worth(float(returns[number]))})" for number in left)
    return [
        f"the other recorded episodes (with their returns): {each}",
        f"  {command} episode={left[0]} step={_last_of(recording, left[0])}",
    ]


def find_moments(
    run: SavedRun, asking: Asking, seconds: float, episodes: Sequence[int] | None = None
) -> tuple[list[WorthAsking], str]:
    """The moments of these episodes (None: of all), largest changes first, and how they were found."""
    recording = run.recording
    assert recording is not None
    among = range(len(recording.episodes)) if episodes is None else episodes
    start, _ = find_recorded(run.env, recording, 0, 0)
    reason = reason_not_to_ask(run, start, asking)
    table = isinstance(run.explainer.predictor, HasTable)
    if table or reason:
        learned = list(_learned(run, recording, among))
        return learned, "by the table" if table else f"as learned; the simulator was not used: {reason}"
    try:
        return list(_rolled_out(run, recording, among, seconds)), BY_ROLLOUTS
    except ValueError as error:  # the simulator cannot be forked
        return list(_learned(run, recording, among)), f"as learned; the simulator was not used: {error}"


def _learned(run: SavedRun, recording: Recording, among: Sequence[int]) -> Iterator[WorthAsking]:
    """Turning points of the learned forecasts at every recorded step."""
    explainer = run.explainer
    if explainer.predictor.horizon < 2 or not explainer.informed:
        return
    points = turning_points(explainer, recording)
    points = points[points["episode"].isin(among) & (points["change"] >= _least(run))]
    for row in points.groupby("episode").head(MOST_OF_ONE).head(MOST_MOMENTS).to_dict("records"):
        said = turning_point_in_words(row, explainer, run.env)
        yield WorthAsking(int(row["episode"]), int(row["step"]), said)


def _rolled_out(
    run: SavedRun, recording: Recording, among: Sequence[int], seconds: float
) -> Iterator[WorthAsking]:
    """Turning points by rollouts along the episodes, lowest return first, within the time budget."""
    ends, found = time.monotonic() + seconds, 0
    simulator = simulator_of(run)
    returns = episode_returns(recording.episodes)
    order = sorted(among, key=lambda number: float(returns[number]))
    for number in order:
        left = ends - time.monotonic()
        if found >= MOST_MOMENTS or (left <= 0 and number != order[0]):
            return
        for point in search_turning_points(simulator, recording, number, left, MOST_OF_ONE)[0]:
            found += 1
            yield WorthAsking(number, point.step, str(point))


def _least(run: SavedRun) -> float:
    """The smallest change of probability that counts."""
    return LEAST_IN_TABLE if isinstance(run.explainer.predictor, HasTable) else LEAST_JUMP


def _last_of(recording: Recording, episode: int) -> int:
    """A step shortly before the end of an episode."""
    return max(0, len(recording.episodes[episode]) - 10)


def _repeated(question: Question) -> list[str]:
    defaults = {field.name: field.default for field in fields(Question)}
    given = {name: getattr(question, name) for name in REPEATED}
    return [
        f"{name}=[{', '.join(value)}]" if isinstance(value, tuple) else f"{name}={value}"
        for name, value in given.items()
        if value != defaults[name]
    ]
