"""Monte Carlo truth for evaluation: means over rollouts of the policy from forks of its environment."""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields

import numpy as np

from tpd.core.bands import Band
from tpd.core.intervals import clopper_pearson
from tpd.core.outcomes import FIRST, OutcomeSet
from tpd.core.seeding import reset_seed
from tpd.core.types import Array, BoolArray, FloatArray, Policy, Rng
from tpd.envs import Environment
from tpd.guards.settings import whole_number
from tpd.predictors.cases import Cases
from tpd.predictors.simulation import Choices, Sample, Simulator
from tpd.sources.exploration import other_actions
from tpd.sources.moments import Moment
from tpd.sources.playing import PlayedStep, play_together


@dataclass(frozen=True)
class SampledCases(Cases):
    """Cases whose truth is a mean over rollouts."""

    rollouts: FloatArray = field(kw_only=True)
    """[case]: the number of rollouts; inf if the case is deterministic"""


def joined(parts: Sequence[SampledCases]) -> SampledCases:
    """Concatenate cases."""
    columns = {f.name: [getattr(part, f.name) for part in parts] for f in fields(SampledCases)}
    return SampledCases(**{name: np.concatenate(values) for name, values in columns.items()})


class MonteCarlo:
    """Estimates true expected outcomes at moments of the policy's episodes, for its own action and a foil.

    Standard errors are those of the mean over rollouts. They are 0 if all rollouts agree, which proves
    nothing about events too rare to have been seen.
    progress: called with the number of moments finished since the last call.
    """

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        moments: int,
        rollouts: int,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self.simulator = Simulator(env, policy, outcomes, horizon=horizon)
        self.env, self.policy, self.outcomes, self.horizon = env, policy, outcomes, horizon
        self.moments = whole_number("moments", moments, at_least=1)
        self.rollouts = whole_number("rollouts", rollouts, at_least=2)  # one has no standard error
        self.progress = progress

    def cases(self, episodes: int, rng: Rng, *, before_ends: bool = False) -> SampledCases:
        """The policy's own action and a foil at moments sampled uniformly from all steps of the episodes.

        before_ends: sample only from the last `horizon` steps of episodes that terminate. Such moments are
        selected by their outcome, so they must not be pooled with the others.
        """
        asked = self.choose(episodes, rng, before_ends)
        samples = self.simulator.sample(asked, self.rollouts)
        return joined([self._estimated(one, sample) for one, sample in zip(asked, samples, strict=True)])

    @property
    def once(self) -> BoolArray:
        """[outcome]: which events happen at most once: first occurrences and termination."""
        return np.array([*(name.startswith(FIRST) for name in self.outcomes.legend.names), True])

    def happened_by(self, cases: SampledCases) -> Band:
        """[case, horizon, outcome]: the 90 % band of P(by step h), given the rollouts.

        Exact binomial limits, from the number of rollouts that saw the event by step h; NaN for outcomes that
        can repeat.
        """
        counted, rollouts = np.cumsum(cases.expected, axis=1), cases.rollouts[:, None, None]
        drawn = np.isfinite(rollouts)
        trials = np.where(drawn, rollouts, 1)
        exact = clopper_pearson(np.rint(counted * trials), trials)
        ends = (np.where(drawn, end, counted) for end in exact)
        return Band(*(np.where(self.once, end, np.nan) for end in ends))

    def choose(self, episodes: int, rng: Rng, before_ends: bool = False) -> list[Choices]:
        """Moments of the episodes, sampled uniformly, with the policy's action and a foil, if there is one.

        Reservoir sampling: only the chosen steps are kept in memory.
        """
        whole_number("episodes", episodes, at_least=1)
        kept = list[tuple[Moment, Array]]()
        steps = play_together(self.env, self.policy, [reset_seed(rng) for _ in range(episodes)], rng)
        every = ((step.moment(), step.action) for step in steps)
        for offered, step in enumerate(_before_ends(steps, self.horizon) if before_ends else every):
            place = offered if offered < self.moments else int(rng.integers(offered + 1))
            if place < self.moments:
                kept[place : place + 1] = [step]
        if not kept:
            raise ValueError(f"none of {episodes} episodes of {self.env.id} terminates: play more episodes")
        chosen = list[Choices]()
        for moment, own in kept:
            foil, possible = other_actions(self.env, moment.observation[None], own, rng)
            actions = np.concatenate([own, foil.astype(own.dtype)]) if possible.all() else own
            chosen.append(Choices(moment, actions, int(rng.integers(2**63))))
        return chosen

    def _estimated(self, asked: Choices, sample: Sample) -> SampledCases:
        """The cases of one moment: means and standard errors over the rollouts."""
        seen, count = sample.seen.astype(np.float64), len(asked.actions)
        if self.progress is not None:
            self.progress(1)
        error = np.zeros(seen.shape[1:])  # of a single, deterministic rollout
        if len(seen) > 1:
            error = seen.std(axis=0, ddof=1) / np.sqrt(len(seen))
        return SampledCases(
            observations=np.repeat(asked.moment.observation[None], count, axis=0),
            actions=asked.actions,
            own=np.arange(count) == 0,
            weight=np.ones(count),
            expected=seen.mean(axis=0),
            standard_error=error,
            rollouts=np.full(count, np.inf if sample.certain.all() else len(seen), dtype=np.float64),
        )


def _before_ends(steps: Iterable[PlayedStep], within: int) -> Iterator[tuple[Moment, Array]]:
    """The last steps, at most `within`, of each episode that terminates."""
    latest = defaultdict[int, deque[PlayedStep]](lambda: deque(maxlen=within))
    for step in steps:
        latest[step.episode].append(step)
        if step.terminated or step.truncated:
            yield from ((one.moment(), one.action) for one in latest.pop(step.episode) if step.terminated)
