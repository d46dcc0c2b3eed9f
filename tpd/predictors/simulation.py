"""Explanations by the simulator: rollouts of the real policy from a moment, each with its own random stream.

Rollout i of every action uses stream i for world and policy, so fact and foil share their random numbers
(common random numbers). Pilot rollouts determine how many are needed and are then discarded: stopping as soon
as the band is narrow enough would bias the answer.
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
"""Environments that are stepped together."""
ROUNDING = 1e-3
"""Tolerance: a network's last digits depend on the batch size, and the world amplifies the difference."""
SCOUTS = 2
"""Rollouts that test whether the moment is deterministic."""
PILOT = 20
"""Rollouts that determine how many are needed, and are discarded."""
PRECISION = 0.06
"""Half-width of the 90 % band of an event, which takes at most 203 rollouts."""
MOST_ROLLOUTS = 10_000
MOST_WAITING = 2**26
"""Maximum bytes of observations in transitions whose outcomes are not yet computed."""
SCOUTING, PILOTING, ANSWERING = range(3)
"""Purposes of rollouts; each has random streams of its own."""


class Choices(NamedTuple):
    """A moment, and the actions to roll out from there."""

    moment: Moment
    actions: Array
    """[choice, ...]"""
    seed: int
    """Seed of the random streams: the same question has the same answer."""


@dataclass(frozen=True)
class Sample:
    """The outcomes in all rollouts of a moment."""

    seen: FloatArray
    """[rollout, choice, horizon, outcome]: the last outcome is termination"""
    certain: BoolArray
    """[choice]: whether the future is deterministic"""


class Simulator:
    """Rolls the policy out from moments of its episodes.

    precision: half-width of the 90 % band of an event; for other outcomes, as a fraction of their range.
    most: maximum number of rollouts, even if the precision is not reached.
    progress: called with the number of steps made since the last call.
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
        self.env, self.policy, self.outcomes = env, policy, outcomes
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self.precision = number("precision", precision, 0.001, 0.5)
        self.most = whole_number("most", most, at_least=2)
        self.seed, self.progress = seed, progress
        env.check_info(outcomes.info_keys)
        self.forks = Forks(env)
        self.followed: Followed | None = None
        """A behaviour that replaces the policy in the first steps."""

    def but(self, *, horizon: int | None = None, followed: Followed | None = None) -> "Simulator":
        """A copy with the same random streams, but another horizon or a behaviour that comes first."""
        other = copy.copy(self)
        other.horizon, other.followed = horizon or self.horizon, followed
        return other

    def explain(self, moment: Moment, actions: Array, rollouts: int | None = None) -> Explanation:
        """Explain each action [choice, ...] at the moment by `rollouts` rollouts, or as many as needed."""
        actions = np.asarray(actions)
        (sample,) = self.sample([Choices(moment, actions, seed_at(self.seed, moment))], rollouts)
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
        """The rollouts of each item: one if it is deterministic, else `rollouts`, or as many as needed."""
        if rollouts is not None:
            whole_number("rollouts", rollouts, at_least=2, at_most=self.most)
        scouted = list(self._scout(asked))
        varying = [one for one, sample in zip(asked, scouted, strict=True) if not sample.certain.all()]
        further = self._roll_out_all(varying, rollouts)
        for sample in scouted:
            if not sample.certain.all():  # the scouted rollout of deterministic actions is repeated
                seen = np.where(sample.certain[:, None, None], sample.seen, next(further))
                sample = Sample(seen, sample.certain)
            yield sample

    def _scout(self, asked: Sequence[Choices]) -> Iterator[Sample]:
        """One rollout of each action, and whether it is deterministic, which a second rollout checks."""
        for some in _together(asked, SCOUTS):
            for seen, chance in self._roll_out(some, SCOUTS, SCOUTING, watched=True):
                certain = np.asarray(~chance.any(axis=0))
                if not np.allclose(seen[0, certain], seen[1, certain], rtol=ROUNDING, atol=ROUNDING):
                    raise ValueError(
                        f"{self.env.id} cannot be forked: two rollouts from one moment with the same seed "
                        "differ; let it draw all random numbers from self.np_random, or ask the learned "
                        "predictor about the observation"
                    )
                yield Sample(seen[:1], certain)

    def _roll_out_all(self, asked: Sequence[Choices], rollouts: int | None) -> Iterator[FloatArray]:
        """The outcomes of each item [rollout, choice, horizon, outcome]."""
        if rollouts is not None:
            for some in _together(asked, rollouts):
                yield from (seen for seen, _ in self._roll_out(some, rollouts, ANSWERING))
            return
        for one in asked:
            ((pilot, _),) = self._roll_out([one], PILOT, PILOTING)
            ((seen, _),) = self._roll_out([one], self._enough(pilot), ANSWERING)
            yield seen

    def _enough(self, pilot: FloatArray) -> int:
        """How many rollouts the precision needs, from pilot rollouts [rollout, choice, horizon, outcome].

        Worst case over all events, at and by every step: the probability within the pilot's band nearest 0.5.
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
        """For each item, outcomes [rollout, choice, horizon, outcome] and randomness [rollout, choice]."""
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
        """The rollouts of these streams, stepped together."""
        self.progress(0)  # forking may take long
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
        """[fork, horizon, outcome]: the outcomes of each fork, starting with these actions."""
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
        """The results of stepped worlds as a batch of transitions."""
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
    """Collects transitions and computes their outcomes in large batches, because each call is slow."""

    def __init__(self, outcomes: OutcomeSet, forks: int, horizon: int) -> None:
        self._outcomes = outcomes
        self._seen: FloatArray = np.zeros((forks, horizon, outcomes.width), dtype=np.float32)
        self._going: FloatArray = np.ones((forks, outcomes.width), dtype=np.float32)
        self._waiting: list[tuple[Transitions, IntArray]] = []
        self._steps = 0

    def add(self, step: Transitions, running: IntArray) -> None:
        """Add the next step of the running forks."""
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


def seed_at(seed: int, moment: Moment) -> int:
    """The seed of the rollouts from a moment, so that errors at different moments are independent."""
    return int(np.random.SeedSequence((seed, moment.seed, moment.step)).generate_state(1)[0])


def world_seeds(keys: Sequence[tuple[int, ...]]) -> IntArray:
    """[stream]: the seed of each world's random generators."""
    return np.array([np.random.SeedSequence(key).generate_state(1, np.uint64)[0] >> 1 for key in keys])


def _together(asked: Sequence[Choices], rollouts: int) -> Iterator[Sequence[Choices]]:
    """Groups of items that can be stepped together."""
    most = max((len(one.actions) for one in asked), default=1)
    size = max(1, TOGETHER // (most * rollouts))
    for first in range(0, len(asked), size):
        yield asked[first : first + size]
