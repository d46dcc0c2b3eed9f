"""The test cases of the comparison: worlds, transitions, moments and their truth, shared by all methods."""

import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from comparison_scores import Said, Truth
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from tpd.core.explanation import Explanation
from tpd.core.seeding import generator
from tpd.core.types import Array, DiscretePolicy, Episodes, FloatArray, Predictor, Transitions
from tpd.envs.tabular import TabularModel
from tpd.evaluation.calibration import calibrate
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.mixture.learner import MixtureLearner
from tpd.predictors.rollouts import MonteCarlo
from tpd.predictors.simulation import Choices, Simulator
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import Parts, build
from tpd.sources.collection import collect, play
from tpd.sources.exploration import Exploration


@dataclass(frozen=True)
class World:
    """An environment with its agent."""

    overrides: tuple[str, ...]
    agent: str | None
    """The name of its zip; None: Q-learning trains one for each seed."""
    decisive: tuple[str, ...]
    epsilon: float = 0.2
    """Exploration rate of the collection."""


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
    "most_likely_trajectory": ("explainer=most_likely_trajectory",),
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
"""The parts of auto; they are trained once, for it and for themselves."""
ROLLOUTS = {"rollouts_20": 20, "rollouts_200": 200}
TRUE_ROLLOUTS, LONG_ROLLOUTS, LONG = 200, 20, 500
"""If nothing is exact: rollouts per pair, rollouts to the end of an episode, and their steps."""
CALIBRATION_MOMENTS, CALIBRATION_ROLLOUTS = 60, 10


@dataclass(frozen=True)
class Settings:
    """The command-line settings."""

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
        """Parse `name=value`; unknown names are refused."""
        given: dict[str, Any] = OmegaConf.to_container(OmegaConf.from_dotlist(list(words)))  # type: ignore[assignment]
        if {*given} - set(cls.__annotations__):
            sys.exit(
                f"comparison takes {', '.join(f'{name}=...' for name in cls.__annotations__)}; got {words}"
            )
        settings = cls(**given)
        for name in ("worlds", "methods", "transitions", "overrides"):
            if isinstance(getattr(settings, name), str):
                sys.exit(f"{name} must be a list, for example {name}=[{getattr(settings, name)}]")
        counts = {name: getattr(settings, name) for name in ("seeds", "moments", "episodes")}
        counts |= {f"transitions[{i}]": size for i, size in enumerate(settings.transitions)}
        for name, count in counts.items():
            if not _whole(count, 1):
                sys.exit(f"{name} must be a whole number of at least 1, got {count!r}")
        if settings.fit_updates is not None and not _whole(settings.fit_updates, 0):
            sys.exit(f"fit_updates must be a whole number, got {settings.fit_updates!r}")
        for what, names, known in (
            ("worlds", settings.worlds, WORLDS),
            ("methods", settings.methods or (), TABLES | VECTORS | ROLLOUTS),
        ):
            if missing := [name for name in names if name not in known]:
                sys.exit(f"{what}: there is no {missing[0]!r}; there are {', '.join(known)}")
        for name in settings.worlds:
            if (agent := WORLDS[name].agent) is None:
                continue
            if not settings.agents_folder:
                sys.exit(f"{name} needs downloaded agents: set their folder, agents_folder=...")
            if not (zipped := settings.zip_of(agent)).is_file():
                sys.exit(f"{name} needs the agent {zipped}, but there is no such file")
        for name in settings.worlds if settings.methods is not None else ():
            learned = TABLES if WORLDS[name].agent is None else VECTORS
            if not settings.wanted([*learned, *ROLLOUTS]):
                sys.exit(f"none of the methods {settings.methods} is for {name}; try {', '.join(learned)}")
        return settings

    def zip_of(self, agent: str) -> Path:
        """The file of a downloaded agent."""
        return Path(self.agents_folder).expanduser() / f"{agent}.zip"

    @property
    def changed(self) -> list[str]:
        """The settings that change results and differ from their defaults, for file names."""
        values = {name: getattr(self, name) for name in ("moments", "episodes", "fit_updates")}
        changed = [f"{name}_{value}" for name, value in values.items() if value != getattr(Settings, name)]
        overrides = zlib.crc32(" ".join(self.overrides).encode())
        return [*changed, f"overrides_{overrides:08x}"] if self.overrides else changed

    def wanted(self, methods: Sequence[str]) -> list[str]:
        """The selected methods among these."""
        return [name for name in methods if self.methods is None or name in self.methods]


class Case:
    """One agent with its transitions and the truth about it; both are computed lazily."""

    def __init__(self, settings: Settings, name: str, seed: int) -> None:
        self.settings, self.name, self.seed, self.world = settings, name, seed, WORLDS[name]
        self.parts = self._built("evaluation=none")
        self.parts.trainer.train()
        self.env, self.policy, self.outcomes = self.parts.env, self.parts.trainer.policy, self.parts.outcomes
        self.horizon = self.parts.explainer.predictor.horizon
        self.taught: dict[tuple[str, int], tuple[Predictor, float]] = {}
        """By method and number of transitions: trained predictors that are reused, and their seconds."""
        self._mixtures: dict[int, MixtureLearner] = {}

    def _built(self, *overrides: str, **given: Any) -> Parts:
        named = [*self.world.overrides, f"seed={self.seed}", "tracking=none"]
        if self.world.agent is not None:
            zipped = self.settings.zip_of(self.world.agent)
            named.append(f"policy.path={zipped}")
            if (statistics := zipped.with_suffix(".vecnormalize.pkl")).exists():
                named.append(f"policy.vec_normalize={statistics}")
        with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
            return build(compose("config", [*named, *overrides, *self.settings.overrides]), **given)

    def learner(self, method: str, transitions: int) -> Predictor:
        """An untrained predictor of a method."""
        words = [*(TABLES | VECTORS)[method], f"training.steps={transitions}", "evaluation=none"]
        if self.settings.fit_updates is not None and method in VECTORS:
            words.append(f"explainer.fit_updates={self.settings.fit_updates}")
        given = {"env": self.env, "trainer": self.parts.trainer, "outcomes": self.outcomes}
        return self._built(*words, **given).explainer.predictor

    def mixture(self, transitions: int) -> MixtureLearner:
        """A mixture of a network and a model."""
        if transitions not in self._mixtures:
            made = self.learner("auto", transitions)
            assert isinstance(made, MixtureLearner)
            self._mixtures[transitions] = made
        return self._mixtures[transitions]

    def collected(self, transitions: int) -> list[Transitions]:
        """The transitions, which are the same for every method."""
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
        """Moments of the policy's episodes, each with the policy's action and a foil."""
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
        """Episodes that were used neither for learning nor for selection."""
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

    def rolled_out(self, rollouts: int, purpose: str, horizon: int | None = None) -> Iterator[Explanation]:
        """Explanations of each moment by this many rollouts, with separate random streams."""
        steps = self.horizon if horizon is None else horizon
        simulator = Simulator(self.env, self.policy, self.outcomes, horizon=steps)
        rng = generator(self.seed, f"comparison {purpose}")
        for one in self.asked:
            simulator.seed = int(rng.integers(2**62))
            yield simulator.explain(one.moment, one.actions, rollouts)

    def calibrated(self, explainer: Explainer) -> None:
        """Calibrate a network's errors at moments of other episodes than those that judge it."""
        cases = MonteCarlo(
            self.env,
            self.policy,
            self.outcomes,
            horizon=self.horizon,
            moments=CALIBRATION_MOMENTS,
            rollouts=CALIBRATION_ROLLOUTS,
        ).cases(CALIBRATION_MOMENTS, generator(self.seed, "comparison calibration"))
        calibrate(explainer, cases, generator(self.seed, "calibration"))


def _whole(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


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
