"""Builds an explainer for a live model, from the same configs as the command line."""

from hydra.utils import instantiate
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from sb3_ext.live_models import GivenStatistics, check_same_world, find_statistics
from sb3_ext.policies import policy_in
from tpd.predictors.explainer import Explainer
from tpd.run.configs import composed
from tpd.run.parts import make_env, make_outcomes


def explainer_for(
    model: BaseAlgorithm,
    *overrides: str,
    deterministic: bool = True,
    vec_normalize: GivenStatistics = None,
) -> Explainer:
    """The explainer of a model, before or during its training: `explainer_for(model, "env=lunar_lander")`.

    overrides: as on the command line: `env=...` or `env.id=...`, `outcomes=...`, `explainer...=...`.
    vec_normalize: the file of its statistics or the wrapper itself, for a model that was loaded without its
        environment; False if none are to be used. Under VecNormalize the explainer sees raw observations, and
        the model normalised ones.
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
