"""The records that tools return: numbers, how they were obtained, and warnings."""

from typing import Any

from pydantic import BaseModel, Field


class RunEntry(BaseModel):
    """A run that can be asked about."""

    run: str = Field(description="The name that the other tools take.")
    title: str | None = None
    env: str | None = None
    seed: str | None = None
    problem: str | None = Field(default=None, description="Why the run cannot be read.")


class RunList(BaseModel):
    """All runs that can be asked about."""

    place: str
    runs: list[RunEntry]
    complete: bool = Field(description="False where there are more runs than are listed.")


class OutcomeEntry(BaseModel):
    """An outcome that a run explains."""

    outcome: str
    event: bool = Field(description="True if it happens or not; false for a number such as a reward term.")
    reward: float | None = Field(description="What it adds to the reward each time; null if it adds nothing.")


class EpisodeEntry(BaseModel):
    """A recorded episode."""

    episode: int
    reset_seed: int
    total_reward: float
    steps: int
    terminated: bool
    happened: dict[str, int] = Field(description="The step of each event that happened exactly once.")


class RunDescription(BaseModel):
    """The description of a run."""

    run: str
    title: str
    env: str
    policy: str = Field(description="The kind of policy, or why it could not be read.")
    actions: list[str] = Field(description="Names of the actions; empty where actions are continuous.")
    state_fields: dict[str, list[Any]] = Field(description="Fields that name a state, and their values.")
    observation_shape: list[int] | None
    outcomes: list[OutcomeEntry]
    horizon: int = Field(description="Number of steps ahead that are explained.")
    discount: float
    learned: str = Field(description="How answers are obtained if the simulator is not used.")
    episodes: list[EpisodeEntry]
    episodes_recorded: int
    returns: list[str] = Field(
        description="The mean return measured in this environment, the expected one, and warnings."
    )


class MomentEntry(BaseModel):
    """A step of a recorded episode that is worth asking about."""

    episode: int
    step: int
    action: str = Field(description="The action that the agent took there.")
    reason: str


class Moments(BaseModel):
    """Steps worth asking about, the most informative first."""

    run: str
    moments: list[MomentEntry]
    how: str = Field(description="How turning points were found.")
    doubts: list[str]


class How(BaseModel):
    """How the numbers of an answer were obtained."""

    kind: str = Field(description="exact, counted, rolled out or learned.")
    words: str
    simulator_not_asked_because: str | None
    run: str = Field(description="Name and seed of the run.")


class Estimate(BaseModel):
    """One number for both actions, with 90 % bands; null if it is unknown or was not learned."""

    fact: float | None
    fact_low: float | None = None
    fact_high: float | None = None
    foil: float | None = None
    foil_low: float | None = None
    foil_high: float | None = None
    difference: float | None = Field(default=None, description="Fact minus foil.")


class Named(BaseModel):
    """An outcome, and the meaning of its numbers."""

    outcome: str
    unit: str


class OutcomeEstimate(Estimate, Named):
    """The expectation of one outcome within the horizon."""

    verdict: str | None = Field(
        default=None, description="Whether it was learned, according to fresh episodes."
    )


class ReturnEstimate(Estimate):
    """The expected discounted return within the horizon; the difference may reach beyond it."""

    to_the_end: bool | None = Field(
        default=None,
        description="Whether difference, its band and settled include what follows the horizon, as the text "
        "does; fact and foil never do.",
    )
    difference_low: float | None = None
    difference_high: float | None = None
    settled: bool | None = Field(
        default=None, description="Whether the 90 % band of the difference excludes 0."
    )


class Reason(BaseModel):
    """An outcome that accounts for much of the difference between the returns."""

    outcome: str
    adds_to_return: float | None = Field(description="In favour of the fact if positive.")
    fact_count: float
    foil_count: float
    first_step: int
    last_step: int = Field(description="Most of the difference falls between these steps.")


class AnswerRecord(BaseModel):
    """The answer to "why this action and not the other one?"."""

    place: str
    fact: str = Field(description="The action explained.")
    foil: str | None = Field(description="The action it is compared with.")
    agents_own_action: str | None
    text: str
    how: How
    horizon: int
    returns: ReturnEstimate | None
    outcomes: list[OutcomeEstimate]
    reasons: list[Reason]
    remarks: list[str]
    doubts: list[str] = Field(description="Remarks that must be reported with these numbers.")


class StepEstimate(BaseModel):
    """The expectation of an outcome at one step; null if it is unknown or was not learned."""

    step: int
    fact: float | None
    foil: float | None = None
    difference: float | None = None
    low: float | None = Field(
        default=None, description="Lower end of the 90 % band of the difference, or the fact."
    )
    high: float | None = None


class Driver(BaseModel):
    """How much one part of the state moves a forecast away from its mean."""

    part: str
    value: float = Field(description="Shapley value; a difference of probabilities for events.")
    standard_error: float


class DriversRecord(BaseModel):
    """What a learned forecast relies on. It says nothing about causes."""

    text: str
    forecast: float | None = Field(description="In the state asked about.")
    mean_forecast: float | None = Field(description="Mean over states that the agent visited.")
    drivers: list[Driver] = Field(description="The largest first; they add up to forecast - mean_forecast.")
    doubts: list[str]


class OutcomeBySteps(BaseModel):
    """The expectation of one outcome at each step ahead."""

    place: str
    fact: str
    foil: str | None
    outcome: str
    unit: str
    steps: list[StepEstimate]
    how: How
    doubts: list[str]


class RewardRange(BaseModel):
    """A range of rewards in which one action has the highest return."""

    low: float
    high: float
    best_action: str | None = Field(description="null where the data do not say which action it is.")


class Overtaking(BaseModel):
    """The reward of an outcome at which the ranking of fact and foil flips."""

    outcome: str
    reward_now: float
    overtakes_at: float | None = Field(description="null if no reward changes their order.")
    certain: bool = Field(
        description="False if the data do not tell whether it is larger or smaller than now."
    )
    text: str
    best_action_by_reward: list[RewardRange]


class ActionReturn(BaseModel):
    """The return of an action under the current and under other rewards, with 90 % bands; null if unknown."""

    action: str
    now: float | None
    now_low: float | None = None
    now_high: float | None = None
    with_these_rewards: float | None = Field(
        default=None, description="null also if no other rewards were given."
    )
    with_these_rewards_low: float | None = None
    with_these_rewards_high: float | None = None


class WhatIf(BaseModel):
    """What other rewards would change, with the rest of the policy unchanged."""

    place: str
    fact: str
    foil: str | None
    overtaking: Overtaking | None
    returns: list[ActionReturn]
    how: How
    remarks: list[str]
    doubts: list[str]


class SkillEntry(BaseModel):
    """How well one outcome was learned; skill 1 is perfect, 0 is no better than the mean."""

    outcome: str
    actions: str
    by: str
    skill: float | None
    verdict: str


class QualityRecord(BaseModel):
    """The quality of the learned answers of a run."""

    run: str
    lines: list[str]
    skills: list[SkillEntry]
    doubts: list[str]
