"""The method against what people would use instead, from the same transitions: docs/comparison.md.

    python scripts/comparison.py worlds=[fuel_taxi,frozen_lake] transitions=[10000,100000]
    python scripts/comparison.py worlds=[cart_pole] agents_folder=... seeds=1
    python scripts/comparison.py report docs/comparison       # the tables and the picture, from what is there

Every world, method, number of transitions and seed leaves a JSON file in outputs/comparison, and is not
measured again while that is there; each is also a run of the MLflow experiment "comparison".
`methods=[replayed]` chooses methods, `moments=20` how many moments are asked about, `fit_updates=300` makes
networks learn less.
"""

import json
import os
import resource
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # as on the command line; read when torch is imported

import numpy as np
from comparison_scores import Figures, Said, Truth, joined, scores
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.outcomes import FIRST
from tpd.core.seeding import generator
from tpd.core.types import (
    Array,
    DiscretePolicy,
    Episodes,
    FittingLearner,
    FloatArray,
    Learner,
    Predictor,
    Transitions,
)
from tpd.envs.tabular import TabularModel
from tpd.evaluation.calibration import calibrate
from tpd.evaluation.forecasts import forecast_skill
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import DrawingPredictor, Explainer, SolvingPredictor
from tpd.predictors.mixture.learner import MixtureLearner
from tpd.predictors.pair_table import HasTable
from tpd.predictors.rollouts import MonteCarlo
from tpd.predictors.simulation import Choices, Simulator
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import Parts, build
from tpd.sources.collection import collect, play
from tpd.sources.exploration import Exploration
from tpd.store.explainers import HasNetwork
from tpd.tracking.mlflow_runs import MlflowTracking


@dataclass(frozen=True)
class World:
    """An environment with its agent."""

    overrides: tuple[str, ...]
    agent: str | None
    """The name of its zip; None where Q-learning trains one for each seed."""
    decisive: tuple[str, ...]
    epsilon: float = 0.2
    """How often the collection leaves the policy."""


WORLDS = {
    "fuel_taxi": World(("experiment=fuel_taxi",), None, ("pickup", "dropoff", "refuel", "failure")),
    "frozen_lake": World(("env=frozen_lake", "policy.steps=2_000_000"), None, ("goal", "hole")),
    "cart_pole": World(("experiment=cart_pole",), "ppo-CartPole-v1", ("falls",)),
    "acrobot": World(("experiment=acrobot",), "a2c-Acrobot-v1", ("goal",)),
    "lunar_lander": World(("experiment=lunar_lander",), "qrdqn-LunarLander-v2", ("crash", "landing")),
}
TABLES = {
    "replayed": ("explainer=replayed",),
    "paper": ("explainer=paper",),
    "model_rollouts": ("explainer=model_rollouts",),
    "most_likely_trajectory": ("explainer=most_likely_trajectory", "explainer.foil_steps=1"),
    "temporal_reward": ("explainer=temporal_reward",),
    "reward_decomposition": ("explainer=reward_decomposition",),
    "outcome_gvfs": ("explainer=outcome_gvfs",),
    "belief_map": ("explainer=belief_map",),
}
VECTORS = {
    "network": ("explainer=auto",),
    "model": ("explainer=auto",),
    "auto": ("explainer=auto",),
    "most_likely_model": ("explainer=most_likely_model",),
    "temporal_reward_network": ("explainer=temporal_reward_network",),
    "reward_decomposition_network": ("explainer=reward_decomposition_network",),
    "outcome_gvfs_network": ("explainer=outcome_gvfs_network",),
}
MIXED = ("network", "model")
"""The parts of auto, which are taught once for it and for themselves."""
ROLLOUTS = {"rollouts_20": 20, "rollouts_200": 200}
TRUE_ROLLOUTS, LONG_ROLLOUTS, LONG = 200, 20, 500
"""Where nothing is exact: rollouts of each pair, of those to the end of an episode, and their steps."""
CALIBRATION_MOMENTS, CALIBRATION_ROLLOUTS = 60, 10
TIMED = 20
"""Answers over which their CPU seconds are averaged."""


@dataclass(frozen=True)
class Settings:
    """What is typed."""

    worlds: Sequence[str] = tuple(WORLDS)
    methods: Sequence[str] | None = None
    transitions: Sequence[int] = (10_000, 100_000, 1_000_000)
    seeds: int = 3
    moments: int = 100
    episodes: int = 300
    fit_updates: int | None = None
    agents_folder: str = ""
    overrides: Sequence[str] = ()
    out: str = "outputs/comparison"
    uri: str = "sqlite:///mlflow.db"

    @classmethod
    def typed(cls, words: Sequence[str]) -> "Settings":
        """From `name=value`, refusing what is not known by name."""
        given: dict[str, Any] = OmegaConf.to_container(OmegaConf.from_dotlist(list(words)))  # type: ignore[assignment]
        if {*given} - set(cls.__annotations__):
            sys.exit(
                f"comparison takes {', '.join(f'{name}=...' for name in cls.__annotations__)}; got {words}"
            )
        settings = cls(**given)
        for what, names, known in (
            ("worlds", settings.worlds, WORLDS),
            ("methods", settings.methods or (), TABLES | VECTORS | ROLLOUTS),
        ):
            if missing := [name for name in names if name not in known]:
                sys.exit(f"{what}: there is no {missing[0]!r}; there are {', '.join(known)}")
        for name in settings.worlds:
            if WORLDS[name].agent and not settings.agents_folder:
                sys.exit(f"{name} explains an agent of other people: say where they are, agents_folder=...")
        return settings

    def wanted(self, methods: Sequence[str]) -> list[str]:
        """Those of the methods that were asked for."""
        return [name for name in methods if self.methods is None or name in self.methods]


class Case:
    """One agent: its transitions, and what is true of it, each made when it is needed first."""

    def __init__(self, settings: Settings, name: str, seed: int) -> None:
        self.settings, self.name, self.seed, self.world = settings, name, seed, WORLDS[name]
        self.parts = self._built("evaluation=none")
        self.parts.trainer.train()
        self.env, self.policy, self.outcomes = self.parts.env, self.parts.trainer.policy, self.parts.outcomes
        self.horizon = self.parts.explainer.predictor.horizon
        self.taught: dict[tuple[str, int], tuple[Predictor, float]] = {}
        """By method and transitions: what others are made of, and its seconds."""
        self._mixtures: dict[int, MixtureLearner] = {}

    def _built(self, *overrides: str, **given: Any) -> Parts:
        named = [*self.world.overrides, f"seed={self.seed}", "tracking=none"]
        if self.world.agent is not None:
            zipped = Path(self.settings.agents_folder).expanduser() / f"{self.world.agent}.zip"
            named.append(f"policy.path={zipped}")
            if (statistics := zipped.with_suffix(".vecnormalize.pkl")).exists():
                named.append(f"policy.vec_normalize={statistics}")
        with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
            return build(compose("config", [*named, *overrides, *self.settings.overrides]), **given)

    def learner(self, method: str, transitions: int) -> Predictor:
        """An explainer's predictor that has learned nothing yet."""
        words = [*(TABLES | VECTORS)[method], f"training.steps={transitions}", "evaluation=none"]
        if self.settings.fit_updates is not None and method in VECTORS:
            words.append(f"explainer.fit_updates={self.settings.fit_updates}")
        given = {"env": self.env, "trainer": self.parts.trainer, "outcomes": self.outcomes}
        return self._built(*words, **given).explainer.predictor

    def mixture(self, transitions: int) -> MixtureLearner:
        """A network and a model, mixed."""
        if transitions not in self._mixtures:
            made = self.learner("auto", transitions)
            assert isinstance(made, MixtureLearner)
            self._mixtures[transitions] = made
        return self._mixtures[transitions]

    def collected(self, transitions: int) -> list[Transitions]:
        """The same for every method."""
        return list(
            collect(
                self.env,
                self.policy,
                generator(self.seed, f"comparison {transitions}"),
                steps=transitions,
                exploration=Exploration(self.world.epsilon),
                num_envs=min(1000, max(10, transitions // 1000)) if self.tabular else 16,
                info_keys=self.outcomes.info_keys,
            )
        )

    @property
    def tabular(self) -> bool:
        return self.env.model is not None

    @cached_property
    def asked(self) -> list[Choices]:
        """Moments of episodes of the policy, each with its action and a foil."""
        found = MonteCarlo(
            self.env,
            self.policy,
            self.outcomes,
            horizon=self.horizon,
            moments=self.settings.moments,
            rollouts=2,
        ).choose(self.settings.moments, generator(self.seed, "comparison moments"))
        return [one for one in found if len(one.actions) == 2]

    @property
    def pairs(self) -> tuple[Array, Array]:
        """[pair]: observations and actions."""
        observations = np.repeat(np.stack([one.moment.observation for one in self.asked]), 2, axis=0)
        return observations, np.concatenate([one.actions for one in self.asked])

    @cached_property
    def fresh(self) -> Episodes:
        """Episodes that nothing was learned from or selected by."""
        rng = generator(self.seed, "comparison fresh")
        return play(self.env, self.policy, rng, episodes=self.settings.episodes)

    @cached_property
    def truth(self) -> Truth:
        own = np.tile([True, False], len(self.asked))
        common: dict[str, Any] = {"own": own, "legend": self.outcomes.legend, "decisive": self.world.decisive}
        if self.tabular:
            assert isinstance(self.policy, DiscretePolicy)
            exact = ExactSolution(self.env, self.policy, self.outcomes, horizon=self.horizon)
            said = Said.of(Explainer(exact, self.policy, self.outcomes.legend).explain(*self.pairs), False)
            assert self.env.model is not None
            endless = endless_values(self.env.model, self.policy)[self.pairs]
            differences = np.stack([said.returns, endless])
            differences = differences[:, ::2] - differences[:, 1::2]
            exactly = np.full(len(own), np.inf)
            return Truth(
                expected=said.expected,
                rollouts=exactly,
                differences=differences,
                errors=np.zeros_like(differences),
                **common,
            )
        explanations = list(self.rolled_out(TRUE_ROLLOUTS, "truth"))
        long = self.rolled_out(LONG_ROLLOUTS, "endless truth", LONG)
        pairs = [
            (one[0:1] - one[1:2], other[0:1] - other[1:2])
            for one, other in zip(explanations, long, strict=True)
        ]
        drawn = [
            [
                contrast.fact.drawn_returns[:, 0, -1] - contrast.foil.drawn_returns[:, 0, -1]
                for contrast in both
            ]
            for both in pairs
        ]
        return Truth(
            expected=np.concatenate([one.expected for one in explanations]),
            rollouts=np.concatenate([one.support for one in explanations]),
            differences=np.array([[each.mean() for each in both] for both in drawn]).T,
            errors=np.array([[_standard_error(each) for each in both] for both in drawn]).T,
            **common,
        )

    def rolled_out(self, rollouts: int, purpose: str, horizon: int | None = None) -> Any:
        """Explanations of each moment by so many rollouts of the simulator, with streams of their own."""
        steps = self.horizon if horizon is None else horizon
        simulator = Simulator(self.env, self.policy, self.outcomes, horizon=steps)
        rng = generator(self.seed, f"comparison {purpose}")
        for one in self.asked:
            simulator.seed = int(rng.integers(2**62))
            yield simulator.explain(one.moment, one.actions, rollouts)

    def calibrated(self, explainer: Explainer) -> None:
        """Let a network know its errors, at moments of other episodes than those that judge it."""
        cases = MonteCarlo(
            self.env,
            self.policy,
            self.outcomes,
            horizon=self.horizon,
            moments=CALIBRATION_MOMENTS,
            rollouts=CALIBRATION_ROLLOUTS,
        ).cases(CALIBRATION_MOMENTS, generator(self.seed, "comparison calibration"))
        calibrate(explainer, cases, generator(self.seed, "calibration"))


def _standard_error(samples: FloatArray) -> float:
    return float(samples.std(ddof=1) / np.sqrt(len(samples))) if len(samples) > 1 else 0.0


def endless_values(model: TabularModel, policy: DiscretePolicy) -> FloatArray:
    """[state, action]: the exact return over an infinite horizon."""
    states, gamma = np.arange(model.num_states), policy.discount
    chosen = policy.probabilities(states)
    reward = (model.probability * model.reward).sum(axis=2)
    follows = np.zeros((model.num_states, model.num_actions, model.num_states))
    s, a, b = np.nonzero(model.probability * ~model.terminated)
    np.add.at(follows, (s, a, model.next_state[s, a, b]), model.probability[s, a, b])
    chain = np.einsum("sa,sat->st", chosen, follows)
    values = np.linalg.solve(np.eye(len(states)) - gamma * chain, (chosen * reward).sum(axis=1))
    return np.asarray(reward + gamma * follows @ values)


def cpu_seconds(work: Callable[[], object]) -> float:
    """Of this process and of those that it waited for."""

    def used() -> float:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(usage.ru_utime + usage.ru_stime for usage in both)

    start = used()
    work()
    return used() - start


def taught(case: Case, method: str, batches: Sequence[Transitions]) -> tuple[Predictor, float]:
    """A method that has learned from these transitions, and the CPU seconds that it took."""
    key = method, sum(map(len, batches))
    if key in case.taught:
        return case.taught[key]
    if method in (*MIXED, "auto"):
        auto = case.mixture(key[1])
        if method == "auto":
            seconds = sum(taught(case, part, batches)[1] for part in MIXED)
            case.taught[key] = auto, seconds + cpu_seconds(auto.weigh)
            return case.taught[key]
        predictor: Predictor = getattr(auto, method)
    else:
        predictor = case.learner(method, key[1])
    assert isinstance(predictor, Learner)

    def learn() -> None:
        for batch in batches:
            predictor.update(batch)
        if isinstance(predictor, FittingLearner):
            predictor.fit(lambda updates: None)
        if isinstance(predictor, SolvingPredictor):
            predictor.solved()

    seconds = cpu_seconds(learn)
    if method in MIXED:
        case.taught[key] = predictor, seconds
    return predictor, seconds


def measured(case: Case, method: str, batches: Sequence[Transitions]) -> Figures:
    """All figures of a method that learns from these transitions."""
    predictor, seconds = taught(case, method, batches)
    figures = {"seconds to learn": seconds, "bytes": float(footprint(predictor))}
    explainer = Explainer(predictor, case.policy, case.outcomes.legend)
    if method in VECTORS:
        case.calibrated(explainer)
    observations, actions = case.pairs
    singles = [slice(2 * k, 2 * k + 2) for k in range(min(TIMED, len(case.asked)))]

    def answer() -> None:
        for rows in singles:
            explainer.explain(observations[rows], actions[rows])

    figures["seconds an answer"] = cpu_seconds(answer) / len(singles)
    drawing = isinstance(
        predictor.solved() if isinstance(predictor, SolvingPredictor) else predictor, DrawingPredictor
    )
    draws = ENOUGH_DRAWS if drawing or explainer.errors is not None else 0
    said = Said.of(explainer.explain(observations, actions, draws=draws), explainer.limits is not None)
    return figures | scores(said, case.truth) | skills(explainer, case)


def skills(explainer: Explainer, case: Case) -> Figures:
    """Brier skill of the decisive events on fresh episodes."""
    found = forecast_skill(explainer, case.outcomes, case.fresh)
    figures = Figures()
    for event in case.world.decisive:
        column = found.names.index(FIRST + event)
        for row, steps in enumerate(found.by.ranges):
            figures[f"{event}: skill {steps}"] = float(found.by.scores.skill[row, column])
    return figures


def simulated(case: Case, rollouts: int) -> Figures:
    """Rollouts of the simulator, which learn nothing."""
    parts = list[Said]()

    def answer() -> None:
        parts.extend(Said.of(one, False) for one in case.rolled_out(rollouts, f"{rollouts} rollouts"))

    figures = {"seconds to learn": 0.0, "seconds an answer": cpu_seconds(answer) / len(case.asked)}
    return figures | {"bytes": 0.0} | scores(joined(parts), case.truth)


def footprint(predictor: Predictor) -> int:
    """Bytes of what a predictor needs to answer."""
    if isinstance(predictor, HasNetwork):
        return sum(array.nbytes for array in predictor.arrays().values())
    assert isinstance(predictor, HasTable)
    table = predictor.table()
    kept = [*vars(table).values(), *(vars(table.edges).values() if table.edges is not None else ())]
    return sum(part.nbytes for part in kept if isinstance(part, np.ndarray))


def path_of(settings: Settings, world: str, method: str, transitions: int, seed: int) -> Path:
    return Path(settings.out) / f"{world}-{method}-{transitions}-{seed}.json"


def keep(settings: Settings, figures: Figures, about: dict[str, Any]) -> None:
    """Write what was measured, and track it."""
    path = path_of(settings, about["world"], about["method"], about["transitions"], about["seed"])
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(about | {"figures": figures}, indent=2))
    if settings.uri:
        tags = {"tpd.role": "comparison", "seed": str(about["seed"]), "explainer": about["method"]}
        with MlflowTracking(uri=settings.uri, experiment="comparison").open(path.stem, about, tags) as run:
            run.metrics({name.replace(":", " /"): value for name, value in figures.items()})
    print(f"{path.stem}: {figures['seconds to learn']:.1f} s of CPU to learn", flush=True)


def measure_world(settings: Settings, name: str, seed: int) -> None:
    """All that is missing of one world and seed."""
    learned = TABLES if WORLDS[name].agent is None else VECTORS
    sizes = settings.transitions if WORLDS[name].agent is None else [100_000]
    missing = {
        (method, size)
        for method, size in [
            *((method, size) for method in settings.wanted([*learned]) for size in sizes),
            *((method, 0) for method in settings.wanted([*ROLLOUTS])),
        ]
        if not path_of(settings, name, method, size, seed).exists()
    }
    if not missing:
        return
    case = Case(settings, name, seed)
    for size in sorted({size for _, size in missing}):
        batches: list[Transitions] = []
        collecting = cpu_seconds(lambda: batches.extend(case.collected(size)))  # noqa: B023
        for method in [method for method in (*ROLLOUTS, *learned) if (method, size) in missing]:
            figures = measured(case, method, batches) if size else simulated(case, ROLLOUTS[method])
            figures["seconds to collect"] = collecting
            about = {"world": name, "method": method, "transitions": size, "seed": seed}
            keep(settings, figures, about)


def main(words: Sequence[str]) -> None:
    if words[:1] == ["report"]:
        from comparison_report import write_report

        write_report(Path(words[2] if len(words) > 2 else Settings.out), Path(words[1]))
        return
    settings = Settings.typed(words)
    for seed in range(settings.seeds):  # a first seed of everything comes first
        for name in settings.worlds:
            measure_world(settings, name, seed)


if __name__ == "__main__":
    main(sys.argv[1:])
