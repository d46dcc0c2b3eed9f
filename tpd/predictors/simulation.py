"""Answers by the simulator: rollouts of the real policy from a moment, one random stream for each.

Rollout i of every action has stream i for world and policy, so that fact and foil meet the same chances
(common random numbers). How many it takes is decided by a pilot that is then discarded: to stop as soon as
the band is narrow enough would bias the answer.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tpd.core.bands import LEVEL
from tpd.core.explanation import Explanation
from tpd.core.intervals import clopper_pearson, trials_for
from tpd.core.observations import batch
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, BoolArray, FloatArray, IntArray, Policy, Transitions, concatenate
from tpd.envs import Environment
from tpd.guards.settings import number, whole_number
from tpd.policies.followed import Followed
from tpd.predictors.streams import PolicyStreams
from tpd.sources.forks import Forks, Start
from tpd.sources.hidden_state import with_next_state
from tpd.sources.moments import Moment
from tpd.sources.worlds import StepResult, Worlds

TOGETHER = 256
"""Environments that are stepped at once."""
ROUNDING = 1e-3
"""Networks give other digits in batches of other sizes, and worlds make more of that within the horizon."""
SCOUTS = 2
"""Rollouts that show whether any other would be the same."""
PILOT = 20
"""Rollouts that show how many are needed, and are discarded."""
PRECISION = 0.06
"""Half the width of the 90 % band of an event: at most 203 rollouts."""
MOST_ROLLOUTS = 10_000
MOST_WAITING = 2**26
"""Bytes of observations whose outcomes are not yet observed."""
SCOUTING, PILOTING, ANSWERING = range(3)
"""What streams are for: each has its own."""


class Choices(NamedTuple):
    """A moment, and actions that may be taken there."""

    moment: Moment
    actions: Array
    """[choice, ...]"""
    seed: int
    """Of the random streams: the same question has the same answer."""


@dataclass(frozen=True)
class Sample:
    """What the rollouts of a moment saw."""

    seen: FloatArray
    """[rollout, choice, horizon, outcome]: the last outcome is termination"""
    certain: BoolArray
    """[choice]: whether any other rollout would have been the same"""


class Simulator:
    """Rolls the policy out from moments of its episodes.

    precision: half the width that the band of an event may have, and of other outcomes as a share of
        their range.
    most: as many rollouts as that are made at most, whatever the precision.
    progress: is told how many steps were made, each time that some were.
    """

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        precision: float = PRECISION,
        most: int = MOST_ROLLOUTS,
        seed: int = 0,
        progress: Callable[[int], None] = lambda steps: None,
    ) -> None:
        self.env = env
        self.policy = policy
        self.outcomes = outcomes
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self.precision = number("precision", precision, 0.001, 0.5)
        self.most = whole_number("most", most, at_least=2)
        self.seed = seed
        self.progress = progress
        env.check_info(outcomes.info_keys)
        self.forks = Forks(env)
        self.followed: Followed | None = None
        """What is done for the first steps instead of what the policy does."""

    def but(self, *, horizon: int | None = None, followed: Followed | None = None) -> "Simulator":
        """The same, and with the same random streams, but with another horizon or a behaviour first."""
        other = copy.copy(self)
        other.horizon, other.followed = horizon or self.horizon, followed
        return other

    def explain(self, moment: Moment, actions: Array, rollouts: int | None = None) -> Explanation:
        """What follows each action [choice, ...] at the moment; `rollouts` of each, or as many as needed."""
        actions = np.asarray(actions)
        (sample,) = self.sample([Choices(moment, actions, self.seed)], rollouts)
        observations = np.repeat(moment.observation[None], len(actions), axis=0)
        expected = sample.seen.mean(axis=0, dtype=np.float64)
        values = self.policy.action_values(observations)
        return Explanation(
            observations=observations,
            actions=actions,
            expected=expected[..., :-1],
            running=1 - np.cumsum(expected[..., -1], axis=1),
            support=np.where(sample.certain, np.inf, len(sample.seen)),
            legend=self.outcomes.legend,
            discount=self.policy.discount,
            agent_value=None if values is None else values[np.arange(len(actions)), actions],
            rollouts=sample.seen[..., :-1],
            action_names=self.env.numbered_action_names,
        )

    def sample(self, asked: Sequence[Choices], rollouts: int | None) -> Iterator[Sample]:
        """For each what its rollouts saw: one where nothing is random, else `rollouts`, or those needed."""
        if rollouts is not None:
            whole_number("rollouts", rollouts, at_least=2, at_most=self.most)
        scouted = list(self._scout(asked))
        varying = [one for one, sample in zip(asked, scouted, strict=True) if not sample.certain.all()]
        further = self._roll_out_all(varying, rollouts)
        for sample in scouted:
            yield sample if sample.certain.all() else _with_certain(next(further), sample)

    def _scout(self, asked: Sequence[Choices]) -> Iterator[Sample]:
        """One rollout of each action, and whether a second that could have differed did not."""
        for some in _together(asked, SCOUTS):
            for seen, chance in self._roll_out(some, SCOUTS, SCOUTING, watched=True):
                certain = np.asarray(~chance.any(axis=0))
                if not np.allclose(seen[0, certain], seen[1, certain], rtol=ROUNDING, atol=ROUNDING):
                    raise ValueError(
                        f"{self.env.id} cannot be forked: two rollouts of one moment differ, although "
                        "neither policy nor world has drawn from a generator, so there is randomness in "
                        "it that cannot be seeded"
                    )
                yield Sample(seen[:1], certain)

    def _roll_out_all(self, asked: Sequence[Choices], rollouts: int | None) -> Iterator[FloatArray]:
        """For each [rollout, choice, horizon, outcome]."""
        if rollouts is not None:
            for some in _together(asked, rollouts):
                yield from (seen for seen, _ in self._roll_out(some, rollouts, ANSWERING))
            return
        for one in asked:
            ((pilot, _),) = self._roll_out([one], PILOT, PILOTING)
            ((seen, _),) = self._roll_out([one], self._enough(pilot), ANSWERING)
            yield seen

    def _enough(self, pilot: FloatArray) -> int:
        """How many rollouts the precision needs, by what a pilot [rollout, choice, horizon, outcome] saw.

        Of all events at and up to every step the one nearest to an even chance, as far as the pilot allows.
        """
        events = np.array([*(outcome.is_event for outcome in self.outcomes.outcomes), True])
        sums = np.cumsum(pilot, axis=2)
        counts = np.stack([pilot.sum(axis=0), np.minimum(sums, 1).sum(axis=0)])[..., events]
        limits = clopper_pearson(counts, np.array(len(pilot)))
        chance = float((0.5 - np.abs(np.clip(0.5, limits.low, limits.high) - 0.5)).max())
        needed = [trials_for(chance, self.precision, LEVEL, self.most)]
        for k, outcome in enumerate(self.outcomes.outcomes):
            if not outcome.is_event:
                spread = pilot[..., k].std(axis=0, ddof=1).max() / (outcome.high - outcome.low)
                needed.append(int(np.ceil((1.645 * spread / self.precision) ** 2)))
        return int(np.clip(max(needed), PILOT, self.most))

    def _roll_out(
        self, asked: Sequence[Choices], count: int, purpose: int, watched: bool = False
    ) -> Iterator[tuple[FloatArray, BoolArray]]:
        """For each [rollout, choice, horizon, outcome], and [rollout, choice] whether chance had a part."""
        most = max(1, TOGETHER // sum(len(one.actions) for one in asked))
        parts = []
        for first in range(0, count, most):
            streams = np.arange(first, min(first + most, count))
            parts.append(list(self._roll_together(asked, streams, purpose, watched)))
        for part in zip(*parts, strict=True):
            seen, chance = zip(*part, strict=True)
            yield np.concatenate(seen), np.concatenate(chance)

    def _roll_together(
        self, asked: Sequence[Choices], streams: IntArray, purpose: int, watched: bool
    ) -> Iterator[tuple[FloatArray, BoolArray]]:
        """The rollouts of these streams."""
        self.progress(0)  # to fork may take long
        width = len(streams)
        keys = [[(one.seed, purpose, int(stream)) for stream in streams] for one in asked]
        starts = [
            Start(one.moment, np.tile(world_seeds(its_keys), len(one.actions)))
            for one, its_keys in zip(asked, keys, strict=True)
        ]
        observations = np.concatenate(
            [np.repeat(one.moment.observation[None], len(one.actions) * width, axis=0) for one in asked]
        )
        actions = np.concatenate([np.repeat(one.actions, width, axis=0) for one in asked])
        rows = [key for one, its_keys in zip(asked, keys, strict=True) for key in its_keys * len(one.actions)]
        policy = PolicyStreams(self.env, self.policy, rows, self.followed)
        with closing(self.forks.worlds(starts, self.horizon, watched)) as worlds:
            seen = self._play(worlds, policy, observations, actions)
            chance = policy.drew | worlds.drew() if watched else policy.drew
        bounds = np.cumsum([len(one.actions) * width for one in asked])[:-1]
        for one, its_seen, its_chance in zip(
            asked, np.split(seen, bounds), np.split(chance, bounds), strict=True
        ):
            shape = len(one.actions), width
            yield its_seen.reshape(*shape, *seen.shape[1:]).swapaxes(0, 1), its_chance.reshape(shape).T

    def _play(self, worlds: Worlds, policy: PolicyStreams, observations: Array, actions: Array) -> FloatArray:
        """[fork, horizon, outcome]: what each fork sees, from these actions on."""
        seen = _Seen(self.outcomes, len(actions), self.horizon)
        running = np.arange(len(actions))
        for h in range(self.horizon):
            step = self.transitions(observations, actions, worlds.step(running, actions))
            seen.add(step, running)
            self.progress(len(running))
            running = running[~step.terminated]
            if not len(running):
                break
            if h + 1 < self.horizon:
                observations = step.next_observation[~step.terminated]
                actions = policy.sample(observations, running, h + 1)
        return seen.finish()

    def transitions(self, observations: Array, actions: Array, steps: Sequence[StepResult]) -> Transitions:
        """What worlds that were stepped have shown."""
        shown, reward, terminated, truncated, info = zip(*steps, strict=True)
        observed = batch(self.env.observation_space, shown)
        return Transitions(
            observation=observations,
            action=actions,
            next_observation=with_next_state(self.policy, observations, observed),
            reward=np.array(reward, dtype=np.float64).reshape(len(steps)),
            terminated=np.array(terminated, dtype=np.bool_),
            truncated=np.array(truncated, dtype=np.bool_),
            info={key: np.array([entry[key] for entry in info]) for key in self.outcomes.info_keys},
        )


class _Seen:
    """Observes the outcomes of many steps at once, since every call of an outcome costs time."""

    def __init__(self, outcomes: OutcomeSet, forks: int, horizon: int) -> None:
        self._outcomes = outcomes
        self._seen: FloatArray = np.zeros((forks, horizon, outcomes.width), dtype=np.float32)
        self._going: FloatArray = np.ones((forks, outcomes.width), dtype=np.float32)
        self._waiting: list[tuple[Transitions, IntArray]] = []
        self._steps = 0

    def add(self, step: Transitions, running: IntArray) -> None:
        """The next step of the forks that run."""
        self._waiting.append((step, running))
        if sum(one.observation.nbytes for one, _ in self._waiting) > MOST_WAITING:
            self._observe()

    def finish(self) -> FloatArray:
        """[fork, horizon, outcome]"""
        self._observe()
        return self._seen

    def _observe(self) -> None:
        if not self._waiting:
            return
        outcome, continuation = self._outcomes.observe(concatenate([step for step, _ in self._waiting]))
        bounds = np.cumsum([len(running) for _, running in self._waiting])[:-1]
        parts = zip(self._waiting, np.split(outcome, bounds), np.split(continuation, bounds), strict=True)
        for (_, running), happened, goes_on in parts:
            self._seen[running, self._steps] = self._going[running] * happened
            self._going[running] *= goes_on
            self._steps += 1
        self._waiting = []


def world_seeds(keys: Sequence[tuple[int, ...]]) -> IntArray:
    """[stream]: a seed for the generators of each world."""
    return np.array([np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1 for key in keys])


def _together(asked: Sequence[Choices], rollouts: int) -> Iterator[Sequence[Choices]]:
    """As many at a time as can be stepped together."""
    most = max((len(one.actions) for one in asked), default=1)
    size = max(1, TOGETHER // (most * rollouts))
    for first in range(0, len(asked), size):
        yield asked[first : first + size]


def _with_certain(seen: FloatArray, scouted: Sample) -> Sample:
    """The rollouts, with the one that was enough where nothing is random."""
    seen = np.where(scouted.certain[:, None, None], scouted.seen, seen)
    return Sample(seen, scouted.certain)
