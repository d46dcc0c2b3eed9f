"""Measure whether 90 % prediction intervals contain the observation in 90 % of fresh episodes.

python scripts/conformal_study.py                  FuelTaxi: the first table of docs/results/distributions.md
python scripts/conformal_study.py env=mountain_car agent=agents/dqn-MountainCar-v0.zip
python scripts/conformal_study.py env=lunar_lander agent=agents/ppo-LunarLander-v2.zip seeds=0,1,2
python scripts/conformal_study.py env=returns      distributions of FuelTaxi's return against the truth
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from conformal import (
    ConformalCalibration,
    Forecast,
    largest_ratio,
    likelihood_ratios,
    observed,
    random_steps,
)
from hydra import compose, initialize_config_dir
from scipy.stats import wasserstein_distance

from tpd.core.distributions import BoundedDistribution, Distribution
from tpd.core.explanation import Explanation
from tpd.core.seeding import generator
from tpd.core.types import (
    Array,
    DiscretePolicy,
    Episodes,
    FittingLearner,
    FloatArray,
    IntArray,
    Learner,
    Policy,
    Transitions,
)
from tpd.envs import Environment
from tpd.predictors.pair_table import Edges, PairTable
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.replayed.returns import ReturnTable, return_table
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import Parts, build
from tpd.sources.collection import collect, play
from tpd.sources.exploration import draw, mix, uniform

SETTINGS = {"env": "fuel_taxi", "agent": "", "seeds": "0,1,2,3,4,5,6,7,8,9"}
LEVEL = 0.9
TABLE_STEPS, TABLE_EPISODES = 100_000, 1000
NETWORK_STEPS, NETWORK_UPDATES, NETWORK_EPISODES = 2000, 200, 150
TIME_LIMIT = 200
BEHAVIOURS = (0.2, 20_000), (0.2, 2000), (0.05, 2000)
"""Rate of random valid actions of each behaviour, and its number of episodes."""
STEP = 10
FINEST = 2001

Row = dict[str, object]


class Quantity(NamedTuple):
    """A quantity that is forecast and observed in a window: a weighted sum over its steps."""

    outcome: str | None
    """None: the reward."""
    weights: FloatArray
    """[horizon]"""

    def forecast(self, explanation: Explanation) -> Forecast:
        """A forecast around the expectation."""
        if self.outcome is None:
            return Forecast.around(explanation.expected_reward @ self.weights)
        column = explanation.legend.names.index(self.outcome)
        return Forecast.around(explanation.expected[:, :, column] @ self.weights)

    def observed(self, parts: Parts, episodes: Episodes, steps: IntArray) -> FloatArray:
        """[window]"""
        values = episodes.transitions.reward
        if self.outcome is not None:
            (found,) = (o for o in parts.outcomes.outcomes if o.name == self.outcome)
            values = found.values(episodes.transitions)
        return observed(episodes, steps, values, self.weights)


Forecaster = tuple[str, Quantity, Callable[[Explanation], Forecast]]


@dataclass(frozen=True)
class Exploring:
    """Epsilon-greedy exploration around a policy."""

    policy: DiscretePolicy
    env: Environment
    epsilon: float

    @property
    def discount(self) -> float:
        return self.policy.discount

    def probabilities(self, observations: Array) -> FloatArray:
        anything = uniform(self.env.mask(observations))
        return mix(self.policy.probabilities(observations), anything, self.epsilon)

    def action(self, observations: Array) -> Array:
        return self.policy.action(observations)

    def sample(self, observations: Array, rng: np.random.Generator) -> IntArray:
        return draw(self.probabilities(observations), rng)

    def action_values(self, observations: Array) -> FloatArray | None:
        return None


class Study:
    """One policy and its explainer, with episodes for calibration and for judging."""

    def __init__(self, parts: Parts, steps: int, episodes: int) -> None:
        self.parts, self.steps, self.episodes = parts, steps, episodes
        parts.trainer.train()
        policy = parts.trainer.policy
        assert isinstance(policy, DiscretePolicy)
        self.policy = policy
        self.horizon = parts.explainer.predictor.horizon
        self.returns = Quantity(None, policy.discount ** np.arange(self.horizon))
        self._learn()

    def _learn(self) -> None:
        predictor = self.parts.explainer.predictor
        assert isinstance(predictor, Learner)
        for batch in collect(
            self.parts.env,
            self.policy,
            self.rng("learning"),
            steps=self.steps,
            exploration=self.parts.training.exploration,
            num_envs=self.parts.training.num_envs,
            info_keys=self.parts.outcomes.info_keys,
        ):
            predictor.update(batch)
        if isinstance(predictor, FittingLearner):
            predictor.fit(lambda updates: None)

    def rng(self, purpose: str) -> np.random.Generator:
        return generator(self.parts.seed, f"conformal {purpose}")

    def play(self, policy: Policy, limit: int, count: int, purpose: str) -> Episodes:
        env = replace(self.parts.env, max_episode_steps=limit)
        return play(env, policy, self.rng(purpose), episodes=count, info_keys=self.parts.outcomes.info_keys)

    def explain(self, windows: Transitions) -> Explanation:
        return self.parts.explainer.explain(windows.observation, windows.action)

    def own_windows(self, forecasters: Sequence[Forecaster]) -> Iterator[Row]:
        """Calibrated on episodes of the policy itself, at any step of an episode."""
        sides = []
        for purpose in ("calibration", "test"):
            episodes = self.play(self.policy, TIME_LIMIT, self.episodes, purpose)
            steps = random_steps(episodes, self.horizon, TIME_LIMIT, self.rng(f"{purpose} steps"))
            sides.append((episodes, steps, self.explain(episodes.transitions[steps])))
        for name, quantity, forecaster in forecasters:
            (seen, forecast), (fresh, wanted) = (
                (quantity.observed(self.parts, episodes, steps), forecaster(explanation))
                for episodes, steps, explanation in sides
            )
            yield judge(f"own: {name}", ConformalCalibration(forecast.scores(seen)), wanted, fresh)

    def behaviour_windows(self) -> Iterator[Row]:
        """Calibrated on the first steps of episodes that explore around the policy."""
        ours = self.play(self.policy, self.horizon, self.episodes, "test from the start")
        fresh = self.returns.observed(self.parts, ours, ours.begins)
        wanted = self.returns.forecast(self.explain(ours.transitions[ours.begins]))
        for epsilon, count in BEHAVIOURS:
            behaviour = Exploring(self.policy, self.parts.env, epsilon)
            theirs = self.play(behaviour, self.horizon, count, f"behaviour {epsilon} {count}")
            forecast = self.returns.forecast(self.explain(theirs.transitions[theirs.begins]))
            scores = forecast.scores(self.returns.observed(self.parts, theirs, theirs.begins))
            ratios = likelihood_ratios(self.policy, behaviour, theirs, self.horizon)
            largest = largest_ratio(epsilon, self.parts.env.num_actions, self.horizon)
            name = f"ε = {epsilon}, {count} episodes"
            yield judge(f"{name}: weighted", ConformalCalibration(scores, ratios, largest), wanted, fresh)
            yield judge(f"{name}: as if its own", ConformalCalibration(scores), wanted, fresh)


def quantiles(explanation: Explanation, returns: ReturnTable) -> Forecast:
    """The range between the two quantiles that contain the level."""
    found = returns.returns(explanation.observations, explanation.actions)
    return Forecast.between(found.quantile((1 - LEVEL) / 2).low, found.quantile((1 + LEVEL) / 2).high)


def scaled(explanation: Explanation, returns: ReturnTable) -> Forecast:
    """Around the expectation, scaled by the distance between the quantiles."""
    between = quantiles(explanation, returns)
    return Forecast.around(explanation.expected_return[:, -1], 1 + between.high - between.low)


def judge(name: str, calibration: ConformalCalibration, forecast: Forecast, fresh: FloatArray) -> Row:
    """Coverage and width of the intervals in fresh windows."""
    interval = calibration.interval(forecast, LEVEL)
    return {
        "windows": name,
        "effective": calibration.effective_size,
        "covered": np.nanmean(interval.contains(fresh)),
        "width": np.mean(interval.high - interval.low),
        "infinite": np.isinf(calibration.threshold(LEVEL)),
    }


def table_study(seed: int, steps: int) -> Study:
    return Study(made("experiment=fuel_taxi", f"seed={seed}"), steps, TABLE_EPISODES)


def fuel_taxi(seed: int) -> Iterator[Row]:
    study = table_study(seed, TABLE_STEPS)
    table = solved(study, learned_table(study), 101)
    moves = Quantity("move", np.ones(study.horizon))
    yield from study.own_windows(
        [
            ("return", study.returns, study.returns.forecast),
            ("return, scaled by the distribution", study.returns, partial(scaled, returns=table)),
            ("return, from its quantiles", study.returns, partial(quantiles, returns=table)),
            ("moves in all", moves, moves.forecast),
        ]
    )
    yield from study.behaviour_windows()


def agent(env: str, path: str, seed: int) -> Iterator[Row]:
    settings = f"policy.path={path}", f"explainer.fit_updates={NETWORK_UPDATES}", f"seed={seed}"
    study = Study(made(f"experiment={env}", *settings), NETWORK_STEPS, NETWORK_EPISODES)
    asked = {"return": study.returns}
    if env == "lunar_lander":
        asked["fuel in all"] = Quantity("fuel", np.ones(study.horizon))
        asked[f"speed lost at step {STEP}"] = Quantity("speed", np.eye(study.horizon)[STEP])
    yield from study.own_windows([(name, quantity, quantity.forecast) for name, quantity in asked.items()])


def returns_against_truth() -> str:
    """Markdown table: distance from the true return distribution, over the pairs that a policy visits."""
    studies = {steps: table_study(0, steps) for steps in (10_000, 100_000, 1_000_000)}
    study = studies[10_000]  # the policy is the same in all
    states = np.unique(study.play(study.policy, TIME_LIMIT, 2000, "met").transitions.observation)
    pairs = states, study.policy.action(states)
    truth = solved(study, true_table(study.parts), FINEST).returns(*pairs).lowest
    lines = [
        "| learned from | atoms | Wasserstein distance | largest | error of the 10 % CVaR |",
        "|---|--:|--:|--:|--:|",
    ]
    for atoms in (11, 51, 101, 501):
        found = solved(study, true_table(study.parts), atoms).returns(*pairs)
        lines.append(f"| the true dynamics | {atoms} | {apart(found, truth)} |")
    for steps, each in studies.items():
        found = solved(each, learned_table(each), 101).returns(*pairs)
        lines.append(f"| {steps:,} transitions | 101 | {apart(found, truth)} |")
    return "\n".join(lines)


def apart(found: BoundedDistribution, truth: Distribution) -> str:
    """Distances over the pairs without unknown futures."""
    known, ours = found.unknown == 0, found.lowest
    both = zip(ours.values, truth.values, ours.probabilities, truth.probabilities, strict=True)
    distances = np.array([wasserstein_distance(*one) for one in both])[known]
    risk = np.abs(ours.cvar(0.1) - truth.cvar(0.1))[known]
    return f"{distances.mean():.3f} | {distances.max():.2f} | {risk.mean():.3f}"


def solved(study: Study, table: PairTable, atoms: int) -> ReturnTable:
    return return_table(table, study.policy, study.parts.outcomes.legend, horizon=study.horizon, atoms=atoms)


def learned_table(study: Study) -> PairTable:
    learned = study.parts.explainer.predictor
    assert isinstance(learned, ReplayedFHTD)
    return learned.table()


def true_table(parts: Parts) -> PairTable:
    """A table whose counts are proportional to the true probabilities."""
    model = parts.env.model
    assert model is not None
    transitions, probability = model.transitions()
    outcome, continuation = parts.outcomes.observe(transitions)
    pair = transitions.observation * model.num_actions + transitions.action
    count = np.round(probability * 1e12).astype(np.int64)
    edges = Edges(pair, transitions.next_observation, outcome, continuation, count)
    pairs = np.unique(pair)
    return PairTable(model.num_actions, pairs, np.zeros((len(pairs), 1, 1)), np.ones(len(pairs)), None, edges)


def made(*overrides: str) -> Parts:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return build(compose("config", [*overrides, "evaluation=none"]))


def rows(settings: dict[str, str]) -> Iterator[Row]:
    """One row per seed and kind of window."""
    for seed in map(int, settings["seeds"].split(",")):
        found = fuel_taxi(seed) if not settings["agent"] else agent(settings["env"], settings["agent"], seed)
        yield from ({"seed": seed, **row} for row in found)


def table(found: pd.DataFrame) -> str:
    """A Markdown table with means over the seeds and the standard deviation of the coverage."""
    lines = ["| windows | effective number | covered | sd over seeds | width |", "|---|--:|--:|--:|--:|"]
    for name, group in found.groupby("windows", sort=False):
        finite = group.width[~group.infinite.astype(bool)]
        width = (
            f"{finite.mean():.3g}" if len(finite) == len(group) else f"infinite in {len(group) - len(finite)}"
        )
        covered = f"{100 * group.covered.mean():.1f} % | {100 * group.covered.std():.1f}"
        lines.append(f"| {name} | {group.effective.mean():.0f} | {covered} | {width} |")
    return "\n".join(lines)


def main() -> None:
    settings = dict(SETTINGS)
    for argument in sys.argv[1:]:
        name, _, value = argument.partition("=")
        if name not in settings:
            sys.exit(f"no setting {name!r}; there are {', '.join(settings)}")
        settings[name] = value
    if settings["env"] not in ("fuel_taxi", "returns") and not settings["agent"]:
        sys.exit(f"env={settings['env']} needs an agent=...zip")
    if settings["env"] == "returns":
        print(returns_against_truth())
    else:
        print(table(pd.DataFrame(rows(settings))))


if __name__ == "__main__":
    main()
