"""Truth without a model: means over rollouts of the policy from forks of its environment."""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy import stats

from tpd.core.bands import LEVEL, Band
from tpd.core.efo import compose
from tpd.core.observations import batch
from tpd.core.outcomes import FIRST, OutcomeSet
from tpd.core.seeding import reset_seed
from tpd.core.types import Array, BoolArray, DiscretePolicy, FloatArray, Index, IntArray, Policy, Transitions
from tpd.envs import Environment
from tpd.guards.settings import number, whole_number
from tpd.predictors.cases import Cases
from tpd.sources.exploration import draw, random_actions, uniform
from tpd.sources.forks import Env, Forks, Moment, random_state
from tpd.sources.hidden_state import with_initial_state, with_next_state

TOGETHER = 256  # environments that are held and stepped at once
SCOUTS = 2  # rollouts that show whether any other would be the same


@dataclass(frozen=True, eq=False)
class _Start:
    """Where rollouts start, and with which actions."""

    moment: Moment
    observation: Array
    """[1, ...]: as the policy sees it, with its hidden state if it has one"""
    actions: Array
    """[choice, ...]: the policy's own, and after it a foil, if any other action is valid"""


@dataclass(frozen=True)
class SampledCases(Cases):
    """Cases whose truth is a mean over rollouts."""

    rollouts: FloatArray = field(kw_only=True)
    """[case]: how many there were; inf where any other would have been the same"""
    return_error: FloatArray = field(kw_only=True)
    """[case, horizon]: standard error of the return up to step h"""

    def __getitem__(self, index: Index) -> "SampledCases":
        chosen = super().__getitem__(index)
        return SampledCases(
            **vars(chosen), rollouts=self.rollouts[index], return_error=self.return_error[index]
        )


class _Estimate(NamedTuple):
    """What the rollouts of a start show."""

    mean: FloatArray
    """[choice, horizon, outcome]"""
    error: FloatArray
    """[choice, horizon, outcome]: standard error of the mean"""
    return_error: FloatArray
    """[choice, horizon]: standard error of the mean return up to step h"""
    rollouts: float


class MonteCarlo:
    """Estimates what is true of moments in episodes of the policy, for its own action and a foil.

    The standard errors are those of the mean over the rollouts. Where all rollouts agree they are 0,
    which proves nothing of events that are too rare to have come up.
    progress: told the number of moments that were finished, whenever some were.
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
        self.env = env
        self.policy = policy
        self.outcomes = outcomes
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self.moments = whole_number("moments", moments, at_least=1)
        self.rollouts = whole_number("rollouts", rollouts, at_least=2)  # one has no standard error
        self.progress = progress
        env.check_info(outcomes.info_keys)
        self.forks = Forks(env)

    def cases(self, episodes: int, rng: np.random.Generator) -> SampledCases:
        """The policy's own action and a foil at moments drawn from all steps of the episodes."""
        starts = self._choose(whole_number("episodes", episodes, at_least=1), rng)
        estimates = list(self._estimate(starts, rng))
        choices = [len(start.actions) for start in starts]
        return SampledCases(
            observations=np.concatenate([start.observation for start in starts]).repeat(choices, axis=0),
            actions=np.concatenate([start.actions for start in starts]),
            own=np.concatenate([np.arange(count) == 0 for count in choices]),
            weight=np.ones(sum(choices)),
            expected=np.concatenate([estimate.mean for estimate in estimates]),
            standard_error=np.concatenate([estimate.error for estimate in estimates]),
            rollouts=np.repeat([estimate.rollouts for estimate in estimates], choices),
            return_error=np.concatenate([estimate.return_error for estimate in estimates]),
        )

    @property
    def events(self) -> BoolArray:
        """[outcome]: which outcomes happen or not, the last being termination."""
        return np.array([*(outcome.is_event for outcome in self.outcomes.outcomes), True])

    def band(self, cases: SampledCases, level: float = LEVEL) -> Band:
        """[case, horizon, outcome]: where the expectations lie, by the rollouts alone.

        Exact binomial limits (Clopper and Pearson) for events, Student's t for the rest, and no width
        where any other rollout would have been the same.
        """
        assert cases.standard_error is not None
        number("level", level, 0, 1)
        low, high = cases.expected.copy(), cases.expected.copy()
        drawn = np.isfinite(cases.rollouts)
        rollouts = cases.rollouts[drawn, None, None]
        mean, error = cases.expected[drawn], cases.standard_error[drawn]
        reach = stats.t.ppf((1 + level) / 2, rollouts - 1) * error
        exact = clopper_pearson(np.rint(mean * rollouts), rollouts, level)
        low[drawn] = np.where(self.events, exact.low, mean - reach)
        high[drawn] = np.where(self.events, exact.high, mean + reach)
        return Band(low, high)

    @property
    def once(self) -> BoolArray:
        """[outcome]: which events happen but once, first occurrences and termination."""
        return np.array([*(name.startswith(FIRST) for name in self.outcomes.legend.names), True])

    def happened_by(self, cases: SampledCases, level: float = LEVEL) -> Band:
        """[case, horizon, outcome]: how likely it has happened by step h, by the rollouts alone.

        Exact binomial limits on how many of them saw it by then; NaN for what can happen again.
        """
        counted, rollouts = np.cumsum(cases.expected, axis=1), cases.rollouts[:, None, None]
        drawn = np.isfinite(rollouts)
        trials = np.where(drawn, rollouts, 1)
        exact = clopper_pearson(np.rint(counted * trials), trials, level)
        ends = (np.where(drawn, end, counted) for end in exact)
        return Band(*(np.where(self.once, end, np.nan) for end in ends))

    def _choose(self, episodes: int, rng: np.random.Generator) -> list[_Start]:
        """Keep some steps of the episodes, each with the same chance, without holding all of them."""
        kept = list[tuple[Moment, Array, Array]]()
        for offered, (moment, observation, own) in enumerate(self._play(episodes, rng)):
            place = offered if offered < self.moments else int(rng.integers(offered + 1))
            if place < self.moments:
                kept[place : place + 1] = [(copy.deepcopy(moment), observation, own)]
        return [
            _Start(moment, observation, self._with_foil(observation, own, rng))
            for moment, observation, own in kept
        ]

    def _play(self, episodes: int, rng: np.random.Generator) -> Iterator[tuple[Moment, Array, Array]]:
        """Every step of episodes: its moment, the observation and the action there, [1, ...] both.

        The moment holds good only until the next step is asked for.
        """
        for first in range(0, episodes, TOGETHER):
            seeds = [reset_seed(rng) for _ in range(first, min(first + TOGETHER, episodes))]
            envs = [self.env.make() for _ in seeds]
            shown = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
            group = _Group(
                self.env,
                self.policy,
                envs,
                with_initial_state(self.policy, batch(self.env.observation_space, shown)),
            )
            group.shown = shown
            taken: list[list[Any]] = [[] for _ in envs]
            while len(group.running):
                actions = self._sample(group.observations, rng)
                for row, episode in enumerate(group.running):
                    moment = Moment(seeds[episode], taken[episode], group.shown[row])
                    yield moment, group.observations[row : row + 1], actions[row : row + 1]
                    taken[episode].append(actions[row])
                step = group.step(actions)
                group.leave(step.terminated | step.truncated)
            group.close()

    def _sample(self, observations: Array, rng: np.random.Generator) -> Array:
        return np.array(self.policy.sample(observations, rng))  # a copy, for it is kept

    def _with_foil(self, observation: Array, own: Array, rng: np.random.Generator) -> Array:
        """[choice, ...]: the action [1, ...] and, if there is any, another one that is valid."""
        if not self.env.discrete:
            foil = random_actions(self.env, observation, rng)
        else:
            others = self.env.mask(observation).copy()
            others[0, own[0]] = False
            if not others.any():
                return own
            foil = draw(uniform(others), rng)
        return np.concatenate([own, foil.astype(own.dtype)])

    def _estimate(self, starts: Sequence[_Start], rng: np.random.Generator) -> Iterator[_Estimate]:
        """For each start what its rollouts show."""
        weights = np.array([weight or 0.0 for weight in (*self.outcomes.legend.weights, None)])
        scouted = list(self._roll_out(starts, SCOUTS, rng, scouting=True))
        varying = [
            start for start, (_, deterministic) in zip(starts, scouted, strict=True) if not deterministic
        ]
        further = self._roll_out(varying, self.rollouts - SCOUTS, rng)
        for seen, deterministic in scouted:
            if not deterministic and self.rollouts > SCOUTS:
                seen = np.concatenate([seen, next(further)[0]], axis=1)
            returns = compose(seen @ weights, self.policy.discount, axis=2)
            yield _Estimate(
                seen.mean(axis=1),
                _standard_error(seen),
                _standard_error(returns),
                np.inf if deterministic else seen.shape[1],
            )
            if self.progress is not None:
                self.progress(1)

    def _roll_out(
        self, starts: Sequence[_Start], count: int, rng: np.random.Generator, scouting: bool = False
    ) -> Iterator[tuple[FloatArray, bool]]:
        """For each start what `count` rollouts of each action see [choice, count, horizon, outcome].

        When scouting, also whether any other rollout is sure to be the same.
        """
        size = max(1, TOGETHER // (2 * max(1, count)))
        for first in range(0, len(starts), size):
            members = starts[first : first + size]
            seen, deterministic = self._roll_together(members, count, rng, scouting)
            bounds = np.cumsum([len(start.actions) * count for start in members])[:-1]
            for start, rows, sure in zip(
                members, np.split(seen, bounds), np.split(deterministic, bounds), strict=True
            ):
                yield rows.reshape(len(start.actions), count, *seen.shape[1:]), bool(sure.all())

    def _roll_together(
        self, starts: Sequence[_Start], count: int, rng: np.random.Generator, scouting: bool
    ) -> tuple[FloatArray, BoolArray]:
        """[fork, horizon, outcome] and [fork]: for each start, for each action, `count` forks."""
        forks = [len(start.actions) * count for start in starts]
        envs = list[Env]()
        for start, copies in zip(starts, forks, strict=True):
            envs += self.forks.fork(start.moment, rng.integers(2**63, size=copies))
        observations = np.concatenate([start.observation for start in starts]).repeat(forks, axis=0)
        actions = np.concatenate([start.actions for start in starts]).repeat(count, axis=0)
        undrawn = [random_state(env) for env in envs] if scouting else []
        deterministic = np.full(len(envs), scouting)
        seen = np.zeros((len(envs), self.horizon, self.outcomes.width))
        going = np.ones((len(envs), self.outcomes.width))
        group = _Group(self.env, self.policy, envs, observations, self.outcomes.info_keys)
        for h in range(self.horizon):
            step = group.step(actions)
            outcome, continuation = self.outcomes.observe(step)
            seen[group.running, h] = going[group.running] * outcome
            going[group.running] *= continuation
            group.leave(step.terminated)
            if not len(group.running):
                break
            if deterministic.any():
                deterministic[group.running] &= self._certain(group.observations)
            actions = self._sample(group.observations, rng)
        if deterministic.any():
            deterministic &= [random_state(env) == state for env, state in zip(envs, undrawn, strict=True)]
        group.close()
        return seen, deterministic

    def _certain(self, observations: Array) -> BoolArray:
        """[batch]: whether the policy is known to have but one action there."""
        if self.env.discrete and isinstance(self.policy, DiscretePolicy):
            return np.asarray(self.policy.probabilities(observations).max(axis=1) == 1)
        return np.zeros(len(observations), dtype=np.bool_)


def _standard_error(seen: FloatArray) -> FloatArray:
    """[choice, ...]: of the mean over rollouts [choice, rollout, ...]."""
    return np.asarray(seen.std(axis=1, ddof=1) / np.sqrt(seen.shape[1]))


def clopper_pearson(happened: FloatArray, trials: FloatArray, level: float = LEVEL) -> Band:
    """The probabilities for which so many of the trials are not too few and not too many."""
    outside = (1 - level) / 2
    low = stats.beta.ppf(outside, happened, trials - happened + 1)
    high = stats.beta.isf(outside, happened + 1, trials - happened)
    return Band(np.where(happened == 0, 0.0, low), np.where(happened == trials, 1.0, high))


class _Group:
    """Environments stepped together, with one call of the policy for all that still run."""

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        envs: Sequence[Env],
        observations: Array,
        info_keys: Sequence[str] = (),
    ) -> None:
        self._env = env
        self._policy = policy
        self._envs = envs
        self._info_keys = info_keys
        self.running: IntArray = np.arange(len(envs))
        """[running]: which environments still run"""
        self.observations = observations
        """[running, ...]: what the policy sees, with its hidden state"""
        self.shown: Sequence[Any] = ()
        """[running]: what the environments showed last, as they gave it"""

    def step(self, actions: Array) -> Transitions:
        """One step of all that run."""
        steps = [self._envs[i].step(action) for i, action in zip(self.running, actions, strict=True)]
        self.shown, reward, terminated, truncated, info = zip(*steps, strict=True)
        before = self.observations
        self.observations = with_next_state(
            self._policy, before, batch(self._env.observation_space, self.shown)
        )
        return Transitions(
            observation=before,
            action=actions,
            next_observation=self.observations,
            reward=np.array(reward, dtype=np.float64).reshape(len(steps)),
            terminated=np.array(terminated, dtype=np.bool_),
            truncated=np.array(truncated, dtype=np.bool_),
            info={key: np.array([entry[key] for entry in info]) for key in self._info_keys},
        )

    def leave(self, ended: BoolArray) -> None:
        """Step those no more that have ended [running]."""
        self.shown = [shown for shown, gone in zip(self.shown, ended, strict=True) if not gone]
        self.observations = self.observations[~ended]
        self.running = self.running[~ended]

    def close(self) -> None:
        for env in self._envs:
            env.close()
