"""The tools that a language model can call; each returns a view of an answer."""

import functools
import io
import logging
from collections.abc import Callable
from typing import Annotated, Any

from mcp.server.mcpserver import Image
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from tpd.assistants import moments as worth
from tpd.assistants import records
from tpd.assistants.library import MOST_RUNS
from tpd.assistants.questions import Questions, described, place, quality_of, require_outcome, what_if_record
from tpd.assistants.views import answer_record, by_steps, drivers_record, how_of
from tpd.guards.files import brief
from tpd.predictors.simulation import MOST_ROLLOUTS

log = logging.getLogger(__name__)
LARGEST_PICTURE = 3 * 2**20
DOTS_PER_INCH = 90
PICTURES = {"plot"}
"""Tools that return pictures, which have no schema."""

Run = Annotated[str, Field(description="Name of a run, from list_runs.", max_length=500)]
Episode = Annotated[
    int | None, Field(description="Number of a recorded episode, from describe_run.", ge=0, le=10**9)
]
Step = Annotated[
    int | None, Field(description="Step of that episode; its action is the one explained.", ge=0, le=10**9)
]
State = Annotated[
    int | list[Any] | dict[str, Any] | None,
    Field(
        description="Instead of episode and step: the fields of a state (see state_fields of describe_run), "
        "its number, or an observation as a list of numbers."
    ),
]
Action = Annotated[
    int | str | list[float] | None,
    Field(description="Name or number of the action explained; the agent's own if left out."),
]
Foil = Annotated[
    int | str | list[float] | None,
    Field(description="Name or number of the other action; the best of the others if left out."),
]
Rollouts = Annotated[
    int | None,
    Field(
        description="Rollouts of each action. Default: as many as a band of ±0.06 needs. 0: none, "
        "only learned predictions.",
        ge=0,
        le=MOST_ROLLOUTS,
    ),
]
Outcome = Annotated[str, Field(description="Name of an outcome, from describe_run.", max_length=1000)]


def _told(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a tool so that its errors reach the model as one line."""

    @functools.wraps(tool)
    def telling(*args: Any, **kwargs: Any) -> Any:
        try:
            return tool(*args, **kwargs)
        except Exception as error:  # environments may raise anything
            if not isinstance(error, ValueError | OSError):
                log.warning("%s failed", tool.__name__, exc_info=error)
            raise ToolError(brief(error)) from error

    return telling


class Tools:
    """The tools; their docstrings are what a language model reads."""

    def __init__(self, questions: Questions) -> None:
        self._questions, self._library = questions, questions.library
        finding = (self.list_runs, self.describe_run, self.moments)
        asking = (self.explain, self.contrast, self.by_step, self.what_if, self.drivers)
        self.all = [_told(tool) for tool in (*finding, *asking, self.quality, self.plot)]

    def list_runs(self) -> records.RunList:
        """List the runs that can be asked about, each an agent in its environment. Call this first."""
        runs = self._library.entries()
        return records.RunList(place=self._library.place, runs=runs, complete=len(runs) < MOST_RUNS)

    def describe_run(self, run: Run) -> records.RunDescription:
        """Describe a run: environment, actions, explained outcomes (events and reward terms), horizon,
        policy, recorded episodes with their events, and the mean return played beside the expected one.
        """
        return described(self._library.read(run))

    def moments(
        self,
        run: Run,
        episode: Episode = None,
        most: Annotated[int, Field(description="How many to list.", ge=1, le=worth.MOST_MOMENTS)] = 10,
    ) -> records.Moments:
        """Find steps of recorded episodes that are worth asking about: turning points, where the forecast
        changed most, and steps shortly before an episode ended or an event first happened in it. Use their
        episode and step in explain.
        """
        return worth.worth_asking(self._library.read(run), episode, most)

    def explain(
        self,
        run: Run,
        episode: Episode = None,
        step: Step = None,
        state: State = None,
        action: Action = None,
        rollouts: Rollouts = None,
    ) -> records.AnswerRecord:
        """Explain why the agent acts as it does at a step of a recorded episode, or in a state: what is
        expected to happen after the action, compared with the best other action. Returns sentences,
        every number with its 90 % band, how it was obtained, and doubts to repeat.
        """
        answer, *_ = self._questions.ask(run, place(episode, step, state), action, rollouts=rollouts)
        return answer_record(answer)

    def contrast(
        self,
        run: Run,
        foil: Foil,
        episode: Episode = None,
        step: Step = None,
        state: State = None,
        action: Action = None,
        rollouts: Rollouts = None,
    ) -> records.AnswerRecord:
        """Compare an action (the fact) with another given one (the foil) at the same place: what would
        happen instead, and what the difference is worth. For "why not X?" and "what if it did X?".
        """
        answer, *_ = self._questions.ask(run, place(episode, step, state), action, foil, rollouts)
        return answer_record(answer)

    def by_step(
        self,
        run: Run,
        outcome: Outcome,
        episode: Episode = None,
        step: Step = None,
        state: State = None,
        action: Action = None,
        foil: Foil = None,
        rollouts: Rollouts = None,
    ) -> records.OutcomeBySteps:
        """List the expectation of one outcome at each step ahead, after the action and after the foil. For
        "when will it happen?" and "how likely is it at step 5?".
        """
        require_outcome(self._library.read(run), outcome)
        answer, *_ = self._questions.ask(run, place(episode, step, state), action, foil, rollouts)
        return by_steps(answer, outcome)

    def what_if(
        self,
        run: Run,
        outcome: Annotated[
            str | None, Field(description="Find the reward of this outcome at which the foil overtakes.")
        ] = None,
        rewards: Annotated[
            dict[str, float] | None, Field(description="Value all actions under these rewards, by outcome.")
        ] = None,
        episode: Episode = None,
        step: Step = None,
        state: State = None,
        action: Action = None,
        foil: Foil = None,
        rollouts: Rollouts = None,
    ) -> records.WhatIf:
        """Ask what other rewards would change at a place, with the rest of the policy unchanged: the reward
        of an outcome at which the foil overtakes the action, which action is best at which reward, and the
        returns of all actions under other rewards.
        """
        asked = self._questions.ask(run, place(episode, step, state), action, foil, rollouts)
        return what_if_record(asked, outcome, rewards or {})

    def drivers(
        self,
        run: Run,
        outcome: Annotated[
            str | None,
            Field(description="An event; the one with most at stake if left out.", max_length=1000),
        ] = None,
        by: Annotated[int | None, Field(description="The step by which it happens.", ge=0, le=10**6)] = None,
        episode: Episode = None,
        step: Step = None,
        state: State = None,
        action: Action = None,
        foil: Foil = None,
    ) -> records.DriversRecord:
        """Say which parts of the state the learned forecast of an event relies on, by Shapley values. For
        "what makes a crash likely here?". It describes the forecast, and says nothing about causes.
        """
        answer, *_ = self._questions.ask(run, place(episode, step, state), action, foil)
        return drivers_record(answer.drivers(outcome, by))

    def quality(self, run: Run) -> records.QualityRecord:
        """Tell how far the learned answers of a run can be trusted: the mean return played beside the
        expected one, and for each outcome its skill on fresh episodes and a verdict (learned, not learned,
        too rare to tell).
        """
        return quality_of(self._library.read(run))

    def plot(
        self,
        run: Run,
        episode: Episode = None,
        step: Step = None,
        state: State = None,
        action: Action = None,
        foil: Foil = None,
        rollouts: Rollouts = None,
    ) -> list[Any]:
        """Draw an answer as a PNG image: the state, the expectations step by step after the action and
        after the foil, and their difference.
        """
        answer, *_ = self._questions.ask(run, place(episode, step, state), action, foil, rollouts)
        drawn = io.BytesIO()
        answer.plot().savefig(drawn, format="png", dpi=DOTS_PER_INCH)
        if drawn.tell() > LARGEST_PICTURE:
            raise ValueError(
                f"the picture has {drawn.tell():,} bytes, which is too large: call explain instead"
            )
        caption = f"{answer.place}: {answer.compared}, {how_of(answer).words}"
        return [caption, Image(data=drawn.getvalue(), format="png")]
