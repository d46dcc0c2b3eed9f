"""Turns tool calls into answers, with the code of `tpd-explain`."""

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np

from tpd.answers import what_if
from tpd.answers.answer import Answer
from tpd.answers.sentences.overtakes import overtakes
from tpd.api.episodes import PlayedEpisode
from tpd.api.quality import Quality
from tpd.api.threads import one_thread
from tpd.assistants import records
from tpd.assistants.library import Library, OpenRun
from tpd.assistants.views import MOST_OUTCOMES, doubts_of, figure_of, how_of, text_of
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation
from tpd.core.types import Array, FloatArray
from tpd.guards.settings import did_you_mean, shown
from tpd.policies.stored import AbsentPolicy
from tpd.run.answering import answered
from tpd.run.expectations import Asking, Expectations, simulator_of
from tpd.run.fact_and_foil import Compared, chosen_action, compared_actions, find_state, valid_actions
from tpd.run.question import Question, QuestionError, checked
from tpd.store.saved_runs import SavedRun

MOST_EPISODES, MOST_PLACES, MOST_ACTIONS = 50, 8, 50
UNJUDGED = (
    "the predictions of this run were not evaluated (evaluation=none), so the quality of learned answers is "
    "unknown"
)
Asked = tuple[Answer, Compared]


class Questions:
    """Answers questions about the runs of a library; recent rollouts are cached, so that all views agree."""

    def __init__(self, library: Library) -> None:
        self.library = library
        self._places: dict[str, tuple[Expectations, Array | None]] = {}

    def ask(
        self, run: str, state: Any, action: Any = None, foil: Any = None, rollouts: int | None = None
    ) -> Asked:
        """The answer, and the pair that it explains."""
        saved = self.library.read(run).saved
        checked(Question(run, state, action=action, foil=foil, rollouts=rollouts))
        for named in (action, foil):  # checked before any rollout
            if named is not None:
                saved.env.action(named)
        with one_thread():
            here, own = self._expectations(saved, state, Asking(rollouts))
            chosen = chosen_action(saved, here.state, own, action, run)
            fact, other = compared_actions(here, own, chosen, foil)
            return answered(fact, other), fact

    def _expectations(self, run: SavedRun, state: Any, asking: Asking) -> tuple[Expectations, Array | None]:
        """The expectations at a state, and the agent's own action there."""
        key = repr((id(run), state, asking))
        if key not in self._places:
            found, own = find_state(run, state)
            self._places[key] = Expectations(run, found, asking), own
        while len(self._places) > MOST_PLACES:
            del self._places[next(iter(self._places))]
        return self._places[key]


def place(episode: int | None, step: int | None, state: Any) -> Any:
    """The state asked about: a step of a recorded episode, or a state named otherwise."""
    if state is not None and (episode is not None or step is not None):
        raise QuestionError("pass either episode and step, or state, not both")
    if state is not None:
        return state
    if episode is None or step is None:
        raise QuestionError("pass episode and step of a recorded episode, or state")
    return {"episode": episode, "step": step}


def described(opened: OpenRun) -> records.RunDescription:
    """The description of a run."""
    run, legend = opened.saved, opened.saved.explainer.legend
    policy, predictor, recording = run.explainer.policy, run.explainer.predictor, run.recording
    kind = type(policy).__name__
    if isinstance(policy, AbsentPolicy):
        kind = f"could not be read: {policy.reason}"
    shape = run.env.observation_space.shape
    quality = Quality.read(opened.folder)
    return records.RunDescription(
        run=opened.id,
        title=run.name,
        env=run.env.id,
        policy=kind,
        actions=list(run.env.numbered_action_names[:MOST_ACTIONS]),
        state_fields={name: list(values)[:MOST_ACTIONS] for name, values in run.env.state_fields.items()},
        observation_shape=None if shape is None else list(shape),
        outcomes=[
            records.OutcomeEntry(outcome=name, event=name in legend.events, reward=figure_of(weight))
            for name, weight in list(zip(legend.names, legend.weights, strict=True))[:MOST_OUTCOMES]
        ],
        horizon=predictor.horizon,
        discount=policy.discount,
        learned=type(predictor).__name__ if run.explainer.informed else "nothing was learned",
        episodes=[] if recording is None else _episodes(opened),
        episodes_recorded=0 if recording is None else len(recording.episodes),
        returns=list(map(text_of, quality.lines)) or [UNJUDGED],
    )


def _episodes(opened: OpenRun) -> list[records.EpisodeEntry]:
    recording, legend = opened.saved.recording, opened.saved.explainer.legend
    assert recording is not None
    simulator = functools.partial(simulator_of, opened.saved)
    played = [
        PlayedEpisode(recording, number, legend, simulator)
        for number in range(min(len(recording.episodes), MOST_EPISODES))
    ]
    return [
        records.EpisodeEntry(
            episode=number,
            reset_seed=episode.seed,
            total_reward=float(f"{episode.total_reward:.6g}"),
            steps=len(episode),
            terminated=bool(episode.transitions.terminated[-1]),
            happened={name: when[0] for name, when in episode.happened.items() if len(when) == 1},
        )
        for number, episode in enumerate(played)
    ]


def quality_of(opened: OpenRun) -> records.QualityRecord:
    """The quality of the learned answers of a run."""
    quality, skills = Quality.read(opened.folder), list[records.SkillEntry]()
    if (table := quality.table) is not None:
        columns = dict.fromkeys((str(column[0]), str(column[1])) for column in table.columns)
        skills = [
            records.SkillEntry(
                outcome=str(outcome),
                actions=actions,
                by=by,
                skill=figure_of(row[actions, by, "skill"]),
                verdict=str(row[actions, by, "verdict"]),
            )
            for outcome, row in table.head(MOST_OUTCOMES).iterrows()
            for actions, by in columns
        ]
    lines, doubts = list(map(text_of, quality.lines)), [] if skills else [UNJUDGED]
    return records.QualityRecord(run=opened.id, lines=lines, skills=skills, doubts=doubts)


def require_outcome(opened: OpenRun, outcome: str) -> None:
    """Refuse an outcome that the run does not explain."""
    names = opened.saved.explainer.legend.names
    if outcome not in names:
        known = ", ".join(names[:MOST_OUTCOMES])
        raise QuestionError(
            f"there is no outcome {shown(outcome)}; the outcomes are: {known}{did_you_mean(outcome, names)}"
        )


def what_if_record(asked: Asked, outcome: str | None, rewards: Mapping[str, float]) -> records.WhatIf:
    """What other rewards would change, with the rest of the policy unchanged."""
    answer, fact = asked
    run, legend = fact.run, fact.run.explainer.legend
    if outcome is None and not rewards:
        raise QuestionError("pass an outcome, or rewards by outcome, for example {'crash': -20}")
    what_if.with_rewards(legend, dict(rewards))
    overtaking, returns = None, list[records.ActionReturn]()
    if outcome is not None:
        what_if.reward_of(legend, outcome)
    if run.env.discrete:
        actions = np.array(valid_actions(run, fact.state)[:MOST_ACTIONS])
        names = [run.env.name_of_action(action) for action in actions]
        explanation = fact.expectations.explain(actions, draws=ENOUGH_DRAWS)
        columns = _returns("now", explanation, {})
        if rewards:
            columns |= _returns("with_these_rewards", explanation, rewards)
        rows = [{key: figure_of(column[row]) for key, column in columns.items()} for row in range(len(names))]
        returns = [records.ActionReturn(action=name, **row) for name, row in zip(names, rows, strict=True)]
    if outcome is not None:
        ranges = _ranges(explanation, outcome, names) if run.env.discrete else []
        overtaking = _overtaking(answer, outcome, ranges)
    return records.WhatIf(
        place=answer.place,
        fact=answer.fact.action,
        foil=None if answer.foil is None else answer.foil.action,
        overtaking=overtaking,
        returns=returns,
        how=how_of(answer),
        remarks=[*answer.remarks, "the rest of the policy is unchanged"],
        doubts=doubts_of(answer),
    )


def _returns(name: str, explanation: Explanation, rewards: Mapping[str, float]) -> dict[str, FloatArray]:
    """Columns [action]: the return under these rewards, and the ends of its band; NaN if unknown."""
    worth, band = what_if.returns(explanation, rewards), what_if.return_band(explanation, rewards)
    ends = {} if band is None else {f"{name}_{end}": values for end, values in band._asdict().items()}
    return {name: worth} | {key: np.where(np.isnan(worth), np.nan, values) for key, values in ends.items()}


def _ranges(explanation: Explanation, outcome: str, names: list[str]) -> list[records.RewardRange]:
    """Which action has the highest return for which reward of an outcome, around its current value."""
    around = what_if.rewards_around(explanation.legend, outcome)
    best = what_if.best_actions(explanation, outcome, *around)
    return [
        records.RewardRange(
            low=float(f"{low:.6g}"),
            high=float(f"{high:.6g}"),
            best_action=None if row is None else names[row],
        )
        for low, high, row in best[: 2 * MOST_ACTIONS]
    ]


def _overtaking(answer: Answer, outcome: str, ranges: list[records.RewardRange]) -> records.Overtaking | None:
    """The reward at which the ranking of fact and foil flips; None without a foil."""
    contrast = answer.contrast
    if contrast is None or answer.foil is None:
        return None
    column = contrast.fact.legend.names.index(outcome)
    certain = not contrast.drawn or bool(what_if.sign_certain(contrast)[0, column])
    return records.Overtaking(
        outcome=outcome,
        reward_now=what_if.reward_of(contrast.fact.legend, outcome),
        overtakes_at=figure_of(what_if.overtaking(contrast, 0, outcome)) if certain else None,
        certain=certain,
        text=overtakes(contrast, 0, outcome, answer.fact.name, answer.foil.name),
        best_action_by_reward=ranges,
    )
