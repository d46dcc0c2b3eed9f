"""The contents of a report: recorded steps, all valid actions there, and their explanations."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from tpd.answers.batch import Answers, Choice
from tpd.answers.foil import favoured, scores
from tpd.answers.sentences.turning import turning_point_in_words
from tpd.answers.what_if import SAME_COUNT, SAME_REWARD, sign_certain
from tpd.core import colours
from tpd.core.bands import ENOUGH_DRAWS, Band
from tpd.core.explanation import ENOUGH_VISITS, Explanation, together
from tpd.core.formats import RULES
from tpd.core.outcomes import FIRST, Legend
from tpd.core.pairs import NO_PAIR, blocks
from tpd.core.types import Array, DiscretePolicy, FloatArray, IntArray
from tpd.envs import Environment
from tpd.predictors.explainer import ROUNDING, Explainer
from tpd.show.report import pictures
from tpd.show.report.dynamics import dynamics
from tpd.show.report.packing import Quantised
from tpd.show.report.pictures import Pictures
from tpd.show.report.rolled_out import RolledOut, rolled_out_pairs
from tpd.show.report.rows import Rows, each_step, numbered_states
from tpd.sources.episodes import Recording, some_episodes
from tpd.store.saved_runs import SavedRun

MOST_TURNING_POINTS = 6
LEAST_CHANGE, LEAST_CHANGE_OF_NETWORKS = 0.02, 0.1
"""Smallest change of probability of a turning point; higher for networks, whose forecasts are noisy."""


@dataclass(frozen=True)
class Contents:
    """The texts, arrays and pictures of a report."""

    metadata: dict[str, Any]
    arrays: dict[str, Array]
    files: tuple[bytes, ...]


def gather(
    run: SavedRun,
    numbers: list[int],
    rolled_out: Sequence[RolledOut] = (),
    points: pd.DataFrame | None = None,
) -> Contents:
    """The contents for the recorded episodes with these numbers (sorted).

    points: turning points, possibly of other episodes too; None if there are none.
    """
    explainer, env = run.explainer, run.env
    recording = None if run.recording is None else some_episodes(run.recording, numbers)
    fields = env.state_fields if isinstance(explainer.policy, DiscretePolicy) else {}
    if recording is None and not fields:
        raise ValueError(f"{run.name} has no recorded episodes to report: set recording.episodes")
    rows = _rows(run, recording, explorable=bool(fields))
    state, column = np.nonzero(rows.valid)
    learned = explainer.explain(rows.observations[state], rows.actions[state, column], draws=ENOUGH_DRAWS)
    options = np.full(rows.valid.shape, NO_PAIR, dtype=np.int32)
    options[state, column] = np.arange(len(state))
    shown = _pictures(env, recording, rows, explorable=bool(fields))
    simulated = [one for one in rolled_out if one.episode in numbers]
    told, beside = rolled_out_pairs(simulated, recording, numbers, rows, learned, options)
    names = [env.name_of_state(one) for one in rows.observations]
    answers = _answers(run, learned, rows, options, names)
    ranges, arrays = _numbers([learned, *(one.explanation for one in simulated)])
    metadata = {
        "name": run.name,
        "environment": env.id,
        "actions": rows.names,
        "states": names,
        "sentences": _sentences(answers, rows),
        "learned": learned.obtained,
        "fields": [{"name": name, "values": values} for name, values in fields.items()],
        "layers": shown.layers,
        "tie": explainer.predictor.tie,
        "rounding": ROUNDING,
        "formats": RULES,
        "same": {"count": SAME_COUNT, "reward": SAME_REWARD},
        "numbers": list(numbers),
        "left_out": 0 if run.recording is None else len(run.recording.episodes) - len(numbers),
        **ranges,
        **_about_outcomes(learned),
        "episodes": [] if recording is None else _endings(recording),
        "turning_points": [] if points is None else _turning_points(explainer, env, points, numbers),
        **told,
    }
    arrays |= {"options": options, "picture": shown.shown, **_placed(run, recording, rows)}
    arrays |= {**_certain(learned, options), **beside, "foil": _foils(run, learned, rows, options)}
    return Contents(metadata, arrays, shown.files)


def _rows(run: SavedRun, recording: Recording | None, explorable: bool) -> Rows:
    if run.env.tabular:
        return numbered_states(run.explainer, run.env, recording, explorable)
    assert recording is not None
    return each_step(run.env, recording)


def _placed(run: SavedRun, recording: Recording | None, rows: Rows) -> dict[str, Array]:
    """The positions of steps and states: in the episodes, and in a table."""
    arrays = {"entries": rows.entries.astype(np.int32), "steps": rows.steps.astype(np.int32)}
    if recording is not None:
        arrays["begins"] = recording.episodes.begins.astype(np.int32)
        arrays["happened"] = recording.happened.astype(np.float32)
    if run.env.tabular:
        arrays["state_number"] = rows.observations.astype(np.int32)
        arrays |= dynamics(run)
    return arrays


def _numbers(parts: Sequence[Explanation]) -> tuple[dict[str, Any], dict[str, Array]]:
    """The expectations of all pairs: first the learned ones, then those by rollouts."""
    joined = together([replace(part, draws=None, rollouts=None) for part in parts])
    expected, unknown = _quantised(joined)
    arrays = {"expected": expected.planes, "unknown": unknown.planes}
    arrays |= {**_figures(joined), **_bands(parts), **_told(parts)}
    return {"expected_range": {"low": expected.low.tolist(), "span": expected.span.tolist()}}, arrays


def _about_outcomes(explanation: Explanation) -> dict[str, Any]:
    return {
        "outcomes": _outcomes(explanation.legend),
        "rewarded": explanation.legend.reward_bound is not None,
        "horizon": explanation.horizon,
        "discount": explanation.discount,
        "enough_visits": ENOUGH_VISITS,
        "counted": explanation.counted,
        "endless": _endless(explanation),
        "learned_steps": explanation.told.returns.all(axis=0).tolist(),
    }


def _endless(explanation: Explanation) -> str | None:
    """What is predicted over an infinite horizon: terms of the return, or rewards by steps; None: neither."""
    if not explanation.endless:
        return None
    return "steps" if explanation.stepwise else "terms"


def _figures(explanation: Explanation) -> dict[str, Array]:
    """Summary numbers of each pair."""
    figures = {
        "counts": _counts(explanation),
        "reach": explanation.foreseen.sum(axis=1).astype(np.int32),
        "support": explanation.support.astype(np.float32),
        "running": np.clip(explanation.running[:, -1], 0, 1).astype(np.float32),
    }
    if explanation.agent_value is not None:
        figures["agent_value"] = explanation.agent_value.astype(np.float32)
    return figures


def _bands(parts: Sequence[Explanation]) -> dict[str, Array]:
    """Bands of first occurrences up to each step [low and high, horizon, pair], and of returns.

    If only some pairs have bands, the others get bands of zero width.
    """
    if not any(part.banded for part in parts):
        return {}
    firsts = [k for k, name in enumerate(parts[0].legend.names) if name.startswith(FIRST)]
    some = [part[block] for part in parts for block in blocks(len(part))]
    sums = [_sum_band(one, firsts) for one in some]
    ends = [np.concatenate([band[i] for band in sums]) for i in (0, 1)]
    planes = np.clip(np.nan_to_num(np.concatenate(ends, axis=2)), 0, 1).transpose(2, 1, 0).astype(np.float64)
    bands = {"band": Quantised.of(planes, np.zeros(len(planes)), np.ones(len(planes))).planes}
    if parts[0].legend.reward_bound is not None:
        returns = [one.return_band() if one.banded else _no_band(one) for one in some]
        for i, name in enumerate(("return_low", "return_high")):
            bands[name] = np.concatenate([band[i][:, -1] for band in returns]).astype(np.float32)
    return bands


def _sum_band(part: Explanation, columns: Sequence[int]) -> Band:
    if part.banded:
        return part.sum_band(columns=columns)
    sums = np.cumsum(part.expected[..., columns], axis=1)
    return Band(sums, sums)


def _no_band(part: Explanation) -> Band:
    """[pair, horizon]: NaN bands for the return."""
    nothing = np.full(part.expected.shape[:2], np.nan)
    return Band(nothing, nothing)


def _told(parts: Sequence[Explanation]) -> dict[str, Array]:
    """Which numbers may be shown: at and up to each step [outcome, horizon, pair], end and return [pair].

    Empty if the predictor was not judged.
    """
    if all(part.verdicts is None for part in parts):
        return {}
    told = [part.told for part in parts]
    return {
        "told_at": np.concatenate([one.at for one in told]).transpose(2, 1, 0).astype(np.uint8),
        "told_by": np.concatenate([one.by for one in told]).transpose(2, 1, 0).astype(np.uint8),
        "told_end": np.concatenate([one.ended[:, -1] for one in told]).astype(np.uint8),
        "told_return": np.concatenate([one.returns[:, -1] for one in told]).astype(np.uint8),
    }


def _certain(explanation: Explanation, options: IntArray) -> dict[str, Array]:
    """Which differences between two actions in a state are certain.

    sign_certain [state, column, column, outcome]: whether the sign of the outcome's difference is certain.
    settled [state, column, column]: whether it is certain which action has the higher return. Both are left
    out if nothing is uncertain.
    """
    drawn, columns, found = explanation.draws is not None, options.shape[1], dict[str, Array]()
    names = explanation.legend.names
    if drawn:
        found["sign_certain"] = np.zeros((len(options), columns, columns, len(names)), dtype=np.uint8)
    in_doubt = drawn or not (explanation.counted or explanation.certain.all())
    if explanation.legend.reward_bound is not None and in_doubt:
        found["settled"] = np.zeros((len(options), columns, columns), dtype=np.uint8)
    for one, other in combinations(range(columns) if found else (), 2):
        both = np.flatnonzero((options[:, one] != NO_PAIR) & (options[:, other] != NO_PAIR))
        for block in blocks(len(both)):
            some = both[block]
            contrast = explanation[options[some, one]] - explanation[options[some, other]]
            certain = {"settled": contrast.settled} if "settled" in found else {}
            if drawn:
                certain["sign_certain"] = sign_certain(contrast)
            for name, values in certain.items():
                found[name][some, one, other] = found[name][some, other, one] = values
    return found


def _pictures(env: Environment, recording: Recording | None, rows: Rows, explorable: bool) -> Pictures:
    if explorable:
        return pictures.composed(env, env.state_fields)
    if recording is not None and recording.frames:
        return pictures.recorded(recording.frames, recording.frame_of(rows.steps))
    return pictures.drawn(env, rows.observations)


def _quantised(explanation: Explanation) -> tuple[Quantised, Quantised]:
    """Expectations [outcome, horizon, pair], and the unknown probability [1, horizon, pair]."""
    expected = explanation.expected.transpose(2, 1, 0).astype(np.float64)
    is_event = explanation.legend.is_event
    low, high = expected.min(axis=(1, 2)), expected.max(axis=(1, 2))
    low, high = np.where(is_event, np.minimum(low, 0), low), np.where(is_event, np.maximum(high, 1), high)
    unknown = np.clip(explanation.unknown.T[None], 0, 1)
    return Quantised.of(expected, low, high), Quantised.of(unknown, np.zeros(1), np.ones(1))


def _counts(explanation: Explanation) -> FloatArray:
    """[pair, outcome]: `sum_h discount^h O_h`, from which returns follow under any rewards."""
    return np.asarray(np.einsum("phk,h->pk", explanation.expected.astype(np.float64), explanation.discounts))


def _outcomes(legend: Legend) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "weight": weight,
            "event": name in legend.events,
            "partition": name in legend.partition,
            "first": name in legend.events and name.startswith(FIRST),
            "colour": colours.colour(legend.names, name),
            "round": colours.rounds(legend.names, name),
        }
        for name, weight in zip(legend.names, legend.weights, strict=True)
    ]


def _endings(recording: Recording) -> list[str]:
    """How each episode ended."""
    lasts = (recording.episodes[number][-1:] for number in range(len(recording.episodes)))
    return [
        "terminated" if last.terminated else "time limit" if last.truncated else "recorded no further"
        for last in lasts
    ]


def _turning_points(
    explainer: Explainer, env: Environment, points: pd.DataFrame, numbers: list[int]
) -> list[dict[str, Any]]:
    """The steps of these episodes at which the forecasts change most."""
    least = LEAST_CHANGE if explainer.predictor.tie == 0 else LEAST_CHANGE_OF_NETWORKS
    shown = points["episode"].isin(numbers) & (points["change"] >= least)
    return [
        {
            "episode": numbers.index(row["episode"]),
            "step": int(row["step"]),
            "text": f"Episode {row['episode']}, {turning_point_in_words(row, explainer, env)}",
        }
        for row in points[shown].head(MOST_TURNING_POINTS).to_dict("records")
    ]


def _foils(run: SavedRun, explanation: Explanation, rows: Rows, options: IntArray) -> IntArray:
    """[entry]: the column of the default foil; arbitrary if there is no other action."""
    worth = np.append(scores(explanation, run.explainer.policy), -np.inf)  # NO_PAIR indexes the last element
    state, taken = rows.entries.T
    others = worth[options[state]]
    others[np.arange(len(taken)), taken] = -np.inf
    return np.asarray(others.argmax(axis=1), dtype=np.int32)


def _answers(run: SavedRun, learned: Explanation, rows: Rows, options: IntArray, names: list[str]) -> Answers:
    """[entry and valid column]: the action taken against each foil, or alone in its own column."""
    state, taken = rows.entries.T
    entry, column = np.nonzero(rows.valid[state])
    own = column == taken[entry]
    best, returns = favoured(run.explainer, learned, options[state], taken)

    def choice(entry: int, column: int) -> Choice:
        here, fact, third = int(state[entry]), int(taken[entry]), int(best[entry])
        name = rows.name(here, fact)
        if column == fact:
            return Choice(names[here], name, own=name)
        favoured = None if third in (fact, column) else (rows.name(here, third), float(returns[entry, third]))
        return Choice(names[here], name, rows.name(here, column), name, favoured)

    return Answers(
        facts=learned,
        foils=learned,
        fact=options[state, taken][entry],
        foil=np.where(own, NO_PAIR, options[state[entry], column]),
        choices=[choice(*at) for at in zip(entry.tolist(), column.tolist(), strict=True)],
        tie=run.explainer.predictor.tie,
        run=run.name,
    )


def _sentences(answers: Answers, rows: Rows) -> list[list[str]]:
    """[entry][column]: the sentences; empty for invalid actions."""
    said = iter(answers.sentences)
    return [[next(said) if valid else "" for valid in row] for row in rows.valid[rows.entries[:, 0]]]
