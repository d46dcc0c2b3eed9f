"""An explainer for a model at hand, set up by the same configs as the command line."""

from pathlib import Path
from typing import Literal

from gymnasium import spaces
from hydra import compose, initialize_config_dir
from hydra.utils import instantiate
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_ext.normalization import load_normalization
from sb3_ext.policies import Normalization, as_policy
from tpd.envs import Environment
from tpd.predictors.explainer import Explainer
from tpd.run.cli import CONFIG_FOLDER


def explainer_for(
    model: BaseAlgorithm,
    *overrides: str,
    deterministic: bool = True,
    vec_normalize: str | Path | Literal[False] | None = None,
) -> Explainer:
    """What explains the model, before or while it is trained: `explainer_for(model, "env=lunar_lander")`.

    Overrides are those of the command line: `env=...` or `env.id=...`, `outcomes=...`, `explainer...=...`.
    Under VecNormalize the explainer sees raw observations, and the model its normalised ones.
    vec_normalize: the file of its statistics, for a model that was loaded without its environment; False if
    there are none to be used.
    """
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        cfg = compose("config", ["explainer=network_alongside", *overrides])
    env: Environment = instantiate(cfg.env, _convert_="all")
    env.check()
    _check_same_world(env, model)
    outcomes = instantiate(cfg.outcomes, _convert_="all")
    if callable(outcomes):  # some outcomes depend on the environment
        outcomes = outcomes(env)
    policy = as_policy(
        model,
        deterministic=deterministic,
        normalization=_normalization(model, env, vec_normalize),
        mask=env.mask if env.discrete else None,
    )
    learner = instantiate(cfg.explainer, _convert_="all")(env, policy, outcomes)
    return Explainer(learner, policy, outcomes.legend)


def _normalization(
    model: BaseAlgorithm, env: Environment, given: str | Path | Literal[False] | None
) -> Normalization | Literal[False] | None:
    """What observations go through before the model sees them."""
    if isinstance(given, str | Path):
        return load_normalization(Path(given), env.observation_space)
    if given is not None and given is not False:
        raise ValueError(f"vec_normalize is the file of the statistics, or False, got {given!r}")
    normalize = model.get_vec_normalize_env()
    return given if normalize is None else normalize.normalize_obs


def _check_same_world(env: Environment, model: BaseAlgorithm) -> None:
    """Refuse an environment that is not the model's."""
    actions, others = env.action_space, model.action_space
    same = type(actions) is type(others) and actions.shape == others.shape
    if isinstance(actions, spaces.Discrete) and isinstance(others, spaces.Discrete):
        same = actions.n == others.n
    seen, given = env.observation_space, model.observation_space
    if isinstance(seen, spaces.Box) and len(seen.shape) < 3:  # SB3 turns images round
        same = same and seen.shape == given.shape
    if not same:
        raise ValueError(
            f"{env.id} has observations {seen} and actions {actions}, the model {given} and {others}: "
            'name its environment, as in explainer_for(model, "env.id=MyEnv-v0", "outcomes=default")'
        )
