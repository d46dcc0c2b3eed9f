"""Explains a live model, in an environment that fits it and with its VecNormalize."""

from pathlib import Path
from typing import Any, Literal

from gymnasium import spaces
from hydra.utils import instantiate
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from sb3_ext.normalization import ObservationNormalization, load_normalization
from sb3_ext.policies import policy_in
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer
from tpd.run.configs import composed
from tpd.run.parts import make_env, make_outcomes

GivenStatistics = str | Path | VecNormalize | Literal[False] | None


def explainer_for(
    model: BaseAlgorithm,
    *overrides: str,
    deterministic: bool = True,
    vec_normalize: GivenStatistics = None,
) -> Explainer:
    """The explainer of a model, before or during its training: `explainer_for(model, "env=lunar_lander")`.

    overrides: as on the command line: `env=...` or `env.id=...`, `outcomes=...`, `explainer...=...`.
    vec_normalize: the file with the statistics of VecNormalize, or the wrapper itself, for a model that was
        loaded without its environment; False if none are to be used. Under VecNormalize the explainer sees
        raw observations, and the model normalised ones.
    """
    cfg = composed(["explainer=network_alongside", *overrides])
    env = make_env(cfg)
    check_same_world(env, model)
    statistics = find_statistics(model, env, vec_normalize)
    normalization = statistics.normalize_obs if isinstance(statistics, VecNormalize) else statistics
    policy = policy_in(env, model, deterministic, normalization)
    outcomes = make_outcomes(cfg, env, policy)
    learner = instantiate(cfg.explainer, _convert_="all")(env, policy, outcomes)
    return Explainer(learner, policy, outcomes.legend)


def find_statistics(
    model: BaseAlgorithm, env: Environment, given: GivenStatistics, trust: bool = False
) -> VecNormalize | ObservationNormalization | Literal[False] | None:
    """The normalisation of a model's observations: as given, or else the VecNormalize of the model.

    trust: unpickle a file that cannot be read otherwise.
    """
    if isinstance(given, str | Path):
        file = Path(given).expanduser()
        try:
            return load_normalization(file, env.observation_space)
        except ValueError:
            if not trust:
                raise
        return load_normalization(file, env.observation_space, trust=True)
    if isinstance(given, VecNormalize) or given is False:
        return given
    if given is not None:
        raise ValueError(
            f"vec_normalize must be the file of the statistics, a VecNormalize or False, got {given!r}"
        )
    return model.get_vec_normalize_env()


def check_same_world(env: Environment, model: BaseAlgorithm) -> None:
    """Refuse an environment other than the model's."""
    actions, others = env.action_space, model.action_space
    seen, given = env.observation_space, model.observation_space
    if not _alike(actions, others) or not _alike(seen, given):
        raise ValueError(
            f"the model has observations {given} and actions {others}, but {env.id} has {seen} and "
            f"{actions}: pass the model's own environment (in a terminal env.id=...) and outcomes that fit it"
        )


def _alike(space: spaces.Space[Any], other: spaces.Space[Any]) -> bool:
    if isinstance(space, spaces.Discrete) and isinstance(other, spaces.Discrete):
        return bool(space.n == other.n)
    turned = len(space.shape or ()) >= 3  # SB3 transposes images
    return type(space) is type(other) and (turned or space.shape == other.shape)
