"""An explainer for a model at hand, set up by the same configs as the command line."""

from pathlib import Path
from typing import Literal

from hydra.utils import instantiate
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from sb3_ext.live_models import check_same_world, find_statistics
from sb3_ext.policies import as_policy
from tpd.predictors.explainer import Explainer
from tpd.run.configs import composed
from tpd.run.parts import make_env, make_outcomes


def explainer_for(
    model: BaseAlgorithm,
    *overrides: str,
    deterministic: bool = True,
    vec_normalize: str | Path | VecNormalize | Literal[False] | None = None,
) -> Explainer:
    """What explains the model, before or while it is trained: `explainer_for(model, "env=lunar_lander")`.

    Overrides are those of the command line: `env=...` or `env.id=...`, `outcomes=...`, `explainer...=...`.
    Under VecNormalize the explainer sees raw observations, and the model its normalised ones.
    vec_normalize: the file of its statistics or the wrapper itself, for a model that was loaded without its
    environment; False if there are none to be used.
    """
    cfg = composed(["explainer=network_alongside", *overrides])
    env = make_env(cfg)
    check_same_world(env, model)
    statistics = find_statistics(model, env, vec_normalize)
    policy = as_policy(
        model,
        deterministic=deterministic,
        normalization=statistics.normalize_obs if isinstance(statistics, VecNormalize) else statistics,
        mask=env.mask if env.discrete else None,
    )
    outcomes = make_outcomes(cfg, env, policy)
    learner = instantiate(cfg.explainer, _convert_="all")(env, policy, outcomes)
    return Explainer(learner, policy, outcomes.legend)
