"""Builds the objects of a run from its config, and so checks all settings before any work is done."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from hydra.errors import CompactHydraException, InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from tpd.core.outcomes import OutcomeSet
from tpd.core.seeding import generator
from tpd.core.types import Learner, Policy, Rng, Trainer
from tpd.envs import Environment
from tpd.evaluation.examiner import Evaluation, Examiner
from tpd.guards.settings import boolean, number, whole_number
from tpd.predictors.explainer import Explainer
from tpd.run.training import Training
from tpd.show.atlas import MapSpec
from tpd.show.figures import FigureSpec, figures_from_config
from tpd.sources import named_states
from tpd.sources.episodes import Recorder
from tpd.store import explainers, run_descriptions
from tpd.store.checkpoints import Checkpoint
from tpd.store.descriptions import validated, written
from tpd.store.fingerprints import fingerprint, kind_of
from tpd.store.run_descriptions import RunDescription

CHECKPOINT = "checkpoint.npz"


class ConfigError(CompactHydraException, ValueError):
    """An invalid setting; Hydra prints it as one line."""


@dataclass(frozen=True)
class Parts:
    """The objects of a run: environment, policy source, explainer, training, evaluation and outputs."""

    config: DictConfig
    """The config that they were built from."""
    seed: int
    env: Environment
    outcomes: OutcomeSet
    trainer: Trainer
    explainer: Explainer
    training: Training
    evaluation: Evaluation
    examiner: Examiner | None
    """Compares with the truth; None if there is no truth."""
    figures: tuple[FigureSpec, ...]
    recorder: Recorder
    overview: bool
    """Whether to write maps, turning points and the report."""
    overview_seconds: float
    """Time budget for rollouts in the report."""
    about: RunDescription
    """The description of the run, stored beside the explainer."""

    @property
    def fingerprint(self) -> str:
        """The digest of settings, code and input files."""
        return fingerprint(settings(self.config))

    def checkpoint(self, folder: Path) -> Checkpoint:
        """The checkpoint file of the run, valid for this config only."""
        return Checkpoint(folder / CHECKPOINT, self.fingerprint, float(self.config.checkpoint_seconds))


def build(
    cfg: DictConfig,
    *,
    env: Environment | None = None,
    trainer: Trainer | None = None,
    outcomes: OutcomeSet | None = None,
) -> Parts:
    """Build all parts of a config; an error names the config group at fault.

    env, trainer, outcomes: objects given from Python, used instead of those in the config.
    """
    with blame("seed"):
        seed = whole_number("seed", cfg.seed, at_least=0, at_most=math.inf)
        rng = generator(seed, "policy")
    if env is None:
        env = make_env(cfg)
    if trainer is None:
        trainer = make_trainer(cfg, env, rng)
    policy = trainer.policy
    if outcomes is None:
        outcomes = make_outcomes(cfg, env, policy)
    with blame("outcomes"):
        env.check_info(outcomes.info_keys)
        if env.model is not None and not outcomes.info_keys:
            outcomes.observe(env.model.transitions()[0])
    explainer = Explainer(_make(cfg, "explainer", env, policy, outcomes), policy, outcomes.legend)
    with blame("explainer"):
        explainers.check(explainer.predictor)
    training: Training = _make(cfg, "training")
    with blame("training"):
        training.check(env, outcomes.info_keys, fingerprint(settings(cfg)))
        if isinstance(explainer.predictor, Learner) and not training.transitions(trainer):
            raise ValueError(
                "there are no transitions to learn from, because no policy is trained and training.steps is "
                "0: set training.steps"
            )
    evaluation: Evaluation = _make(cfg, "evaluation")
    examiner: Examiner | None = None
    with blame("evaluation"):
        if evaluation.truth is not None:
            truth = evaluation.truth(env, policy, outcomes, horizon=explainer.predictor.horizon)
            examiner = Examiner(explainer, env, truth, seed, policy_stays=not training.alongside)
    with blame("figures"):
        figures = figures_from_config(cfg.figures, env)
    recorder: Recorder = _make(cfg, "recording")
    _check_playable(env, trainer, evaluation, recorder)
    with blame("overview"):
        overview = boolean("overview", cfg.overview)
        overview_seconds = number("overview_seconds", cfg.overview_seconds, 0, math.inf)
    with blame("checkpoint_seconds"):
        number("checkpoint_seconds", cfg.checkpoint_seconds, 0, float("inf"))
    return Parts(
        config=cfg,
        seed=seed,
        env=env,
        outcomes=outcomes,
        trainer=trainer,
        explainer=explainer,
        training=training,
        evaluation=evaluation,
        examiner=examiner,
        figures=figures,
        recorder=recorder,
        overview=overview,
        about=_describe(settings(cfg), seed, env, outcomes, figures),
        overview_seconds=overview_seconds,
    )


def make_env(cfg: DictConfig, **given: Any) -> Environment:
    """Build the environment of a config, with arguments that only Python can pass."""
    env: Environment = _make(cfg, "env", **given)
    with blame("env"):
        env.check()
    return env


def make_trainer(cfg: DictConfig, env: Environment, rng: Rng, **given: Any) -> Trainer:
    """Build the policy source of a config, with arguments that only Python can pass."""
    trainer: Trainer = _make(cfg, "policy", env, rng, **given)
    return trainer


def make_outcomes(cfg: DictConfig, env: Environment, policy: Policy) -> OutcomeSet:
    """Build the outcomes of a config; a function with a `policy` argument finds them by playing it."""
    with blame("outcomes"):
        made = _instantiated(cfg, "outcomes")
        if isinstance(made, partial):
            found = {"policy": policy} if "policy" in signature(made).parameters else {}
            made = made(env, **found)
    outcomes: OutcomeSet = made
    return outcomes


def _describe(
    plain: Mapping[str, Any], seed: int, env: Environment, outcomes: OutcomeSet, figures: Sequence[FigureSpec]
) -> RunDescription:
    """The stored description of a run with these settings."""
    with blame("env"):
        world = {"env": run_descriptions.describe_env(env), "actions": run_descriptions.describe_actions(env)}
    with blame("outcomes"):
        explained = run_descriptions.describe_outcomes(outcomes)
    with blame("maps"):
        MapSpec.from_config(plain["maps"], env)
    shown = [
        {"name": spec.name, "title": spec.title, "states": [named_states.name(env, s) for s in spec.states]}
        for spec in figures
    ]
    with blame("the description of the run"):
        return validated(
            RunDescription,
            {
                "name": str(plain["name"]),
                "seed": seed,
                "kind": kind_of(plain, seed),
                **{name: written(part) for name, part in world.items()},
                "outcomes": written(explained),
                "figures": shown,
                "maps": plain["maps"] or {},
                "reference": plain["evaluation"].get("reference") or {},
            },
        )


def _check_playable(env: Environment, trainer: Trainer, evaluation: Evaluation, recorder: Recorder) -> None:
    """Refuse to play episodes in an environment that cannot be stepped."""
    playing = {
        "policy.steps": trainer.steps,
        "evaluation.forecast_episodes": evaluation.forecast_episodes,
        "recording.episodes": recorder.episodes,
    }
    for name, count in playing.items():
        if count and not env.playable:
            raise ConfigError(f"env: {env.id} cannot be stepped, so {name} must be 0")


def settings(cfg: DictConfig) -> dict[str, Any]:
    """The config as plain values, with interpolations resolved."""
    plain = OmegaConf.to_container(cfg, resolve=True)
    assert isinstance(plain, dict)
    return {str(key): value for key, value in plain.items()}


def _make(cfg: DictConfig, group: str, *arguments: Any, **given: Any) -> Any:
    """Instantiate a config group; if that gives a partial, call it with the arguments."""
    with blame(group):
        made = _instantiated(cfg, group)
        return made(*arguments, **given) if isinstance(made, partial) else made


def _instantiated(cfg: DictConfig, group: str) -> Any:
    if cfg[group] is None:
        raise ValueError(f"must not be null: choose an option, {group}=... (--help lists them)")
    return instantiate(cfg[group], _convert_="all")


@contextmanager
def blame(group: str) -> Iterator[None]:
    """Turn an error into one line that names the config group it comes from."""
    try:
        yield
    except ConfigError:
        raise
    except InstantiationException as error:
        raise ConfigError(f"{group}: {error.__cause__ or error}") from error
    except Exception as error:
        raise ConfigError(f"{group}: {error}") from error
