"""Stores Stable-Baselines3 agents with their explainers, as plain settings and arrays.

A stored agent is rebuilt like one from a zip: its networks follow from its weights, and its settings must
agree with them. It acts bit for bit like the original agent.
"""

import inspect
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from pydantic import Field
from sb3_contrib import MaskablePPO
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.vec_env import VecNormalize

from sb3_ext.architecture import ACTIVATIONS, EXTRACTORS, TRUST, Algorithm, Space, check_spaces, policy_kwargs
from sb3_ext.loading import ALGORITHMS, EPSILON_GREEDY, build_policy, playing_model
from sb3_ext.normalization import ObservationNormalization, frozen
from sb3_ext.policies import SB3Policy, as_policy
from sb3_ext.unpickling import SavedAgent
from sb3_ext.weights import Weights
from tpd.core.types import Array, Policy
from tpd.envs import Environment
from tpd.envs.spaces import from_plain, to_plain
from tpd.guards.files import REAL, StoredArrays
from tpd.policies.stored import AbsentPolicy
from tpd.store.descriptions import Finite, Plain, Stored, validated, written

WEIGHT, MEAN, VARIANCE = "weight.", "mean", "variance"
CLASSES: Mapping[str, Mapping[str, type]] = {
    "activation_fn": ACTIVATIONS,
    "features_extractor_class": EXTRACTORS,
}

Size = Annotated[int, Field(ge=1, le=2**31)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Layers = list[Size]


class NoOptimizer:
    """Replaces the optimizer: a stored agent only plays, and the first optimizer of torch takes a second."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Accept the arguments of an optimizer."""


class ExtractorSettings(Stored):
    """Settings of a features extractor."""

    features_dim: Size | None = None
    cnn_output_dim: Size | None = None
    normalized_image: bool | None = None


class LSTMSettings(Stored):
    """Settings of an LSTM, besides its sizes."""

    bias: bool | None = None
    dropout: Fraction | None = None


class PolicySettings(Stored):
    """The arguments of an SB3 policy; None: SB3's default."""

    net_arch: Layers | dict[Literal["pi", "vf", "qf"], Layers] | None = None
    activation_fn: Literal[tuple(found.__name__ for found in ACTIVATIONS.values())] | None = None  # type: ignore[valid-type]
    features_extractor_class: Literal["FlattenExtractor", "NatureCNN", "CombinedExtractor"] | None = None
    features_extractor_kwargs: ExtractorSettings | None = None
    n_critics: Size | None = None
    n_quantiles: Size | None = None
    lstm_hidden_size: Size | None = None
    n_lstm_layers: Size | None = None
    lstm_kwargs: LSTMSettings | None = None
    clip_mean: Finite | None = None
    enable_critic_lstm: bool | None = None
    full_std: bool | None = None
    normalize_images: bool | None = None
    share_features_extractor: bool | None = None
    shared_lstm: bool | None = None
    squash_output: bool | None = None
    use_expln: bool | None = None
    use_sde: bool | None = None
    with_bias: bool | None = None


class NormalizationSettings(Stored):
    """Settings of VecNormalize; mean and variance are among the arrays."""

    epsilon: Annotated[float, Field(ge=0)]
    clip: Annotated[float, Field(ge=0)] | None = None
    """None: no clipping."""
    keys: list[str] | None = None
    """The keys of Dict observations that are normalised; None for array observations."""


class AgentSettings(Stored):
    """The settings of an SB3 agent, besides its weights and discount."""

    algorithm: Literal[tuple(ALGORITHMS)]  # type: ignore[valid-type]
    policy: Annotated[str, Field(max_length=100)]
    """SB3's name of the policy: MlpPolicy, CnnPolicy, ..."""
    policy_settings: PolicySettings
    observation_space: dict[str, Plain]
    action_space: dict[str, Plain]
    deterministic: bool
    exploration_rate: Fraction | None = None
    """For epsilon-greedy agents."""
    updates: Annotated[int, Field(ge=0, le=2**62)]
    normalization: NormalizationSettings | None = None


def describe(policy: SB3Policy, env: Environment) -> tuple[dict[str, Any], dict[str, Array]]:
    """The settings and arrays of an agent; a ValueError names a part that is code."""
    model = policy.model
    algorithm = ALGORITHMS.get(type(model).__name__)
    if type(model) is not algorithm:
        raise ValueError(f"its algorithm {_origin(model)} is custom code, which cannot be stored")
    alias = _alias(model, algorithm)
    weights = {name: weight.detach().cpu() for name, weight in model.policy.state_dict().items()}
    arguments = _arguments(model, algorithm, weights)
    plain = {name: value.__name__ if name in CLASSES else value for name, value in arguments.items()}
    if algorithm is MaskablePPO and policy.mask != env.mask:
        raise ValueError("its action masks differ from those of the environment")
    normalization, arrays = _described_normalization(policy)
    settings = AgentSettings(
        algorithm=algorithm.__name__,
        policy=alias,
        policy_settings=validated(PolicySettings, plain),
        observation_space=to_plain(model.observation_space),
        action_space=to_plain(model.action_space),
        deterministic=policy.deterministic,
        exploration_rate=float(model.exploration_rate) if algorithm in EPSILON_GREEDY else None,  # type: ignore[attr-defined]
        updates=int(model._n_updates),
        normalization=normalization,
    )
    if repr(_model(settings, weights).policy) != repr(model.policy):
        raise ValueError("its networks do not match the architecture in its settings")
    return written(settings), {**{WEIGHT + name: w.numpy() for name, w in weights.items()}, **arrays}


def make(given: Mapping[str, Any], stored: StoredArrays, discount: float, env: Environment | None) -> Policy:
    """Rebuild the agent; an absent policy if its action masks are unknown."""
    settings: AgentSettings = validated(AgentSettings, given, "policy.settings")
    if settings.algorithm == MaskablePPO.__name__ and env is None:
        return AbsentPolicy(
            discount, "its actions are masked by the environment: read the whole run, or pass env"
        )
    arrays = stored.every("biuf")
    weights = {
        name.removeprefix(WEIGHT): torch.as_tensor(array)
        for name, array in arrays.items()
        if name.startswith(WEIGHT)
    }
    model = _model(settings, weights)
    model.gamma = discount
    normalization = None
    if settings.normalization is not None:
        normalization = _normalization(settings.normalization, stored, model.observation_space)
    return as_policy(
        model,
        deterministic=settings.deterministic,
        normalization=normalization,
        mask=env.mask if env is not None and env.discrete else None,
    )


def _origin(thing: object) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"


def _alias(model: BaseAlgorithm, algorithm: Algorithm) -> str:
    for alias, policy_class in algorithm.policy_aliases.items():
        if type(model.policy) is policy_class:
            return alias
    raise ValueError(f"its policy {_origin(model.policy)} is custom code, which cannot be stored")


def _arguments(model: BaseAlgorithm, algorithm: Algorithm, weights: Weights) -> dict[str, Any]:
    """The arguments that the policy was built with, all of which must be plain."""
    policy_class = type(model.policy)
    known = inspect.signature(policy_class).parameters.keys()
    built = {
        name: value
        for name, value in model.policy._get_constructor_parameters().items()
        if name in known and name not in ("observation_space", "action_space", "lr_schedule")
    }
    stated = {"policy_kwargs": {**(model.policy_kwargs or {}), **built}}
    agent = SavedAgent({**stated, "use_sde": bool(getattr(model, "use_sde", False))}, weights)
    try:
        return policy_kwargs(agent, algorithm, policy_class, model.action_space)
    except ValueError as error:
        raise ValueError(f"it {str(error).removesuffix(f'; {TRUST}')}") from error


def _model(settings: AgentSettings, weights: Weights) -> Any:
    """Build a model that plays, like one from a zip."""
    algorithm = ALGORITHMS[settings.algorithm]
    policy_class = algorithm.policy_aliases.get(settings.policy)
    if policy_class is None:
        raise ValueError(
            f"policy must be one of {', '.join(algorithm.policy_aliases)}, got {settings.policy!r}"
        )
    observations, actions = from_plain(settings.observation_space), from_plain(settings.action_space)
    check_spaces(observations, actions, weights, settings.policy.startswith("Cnn"))
    stated = written(settings.policy_settings)
    for name, classes in CLASSES.items():
        if name in stated:
            stated[name] = next(found for found in classes.values() if found.__name__ == stated[name])
    agent = SavedAgent({"policy_kwargs": stated, "use_sde": settings.policy_settings.use_sde}, weights)
    arguments = policy_kwargs(agent, algorithm, policy_class, actions)
    trained = "optimizer_class" in inspect.signature(policy_class).parameters
    idle = {"optimizer_class": NoOptimizer} if trained else {}
    policy = build_policy(weights, policy_class, observations, actions, {**arguments, **idle})
    model = playing_model(algorithm, policy, arguments)
    model._n_updates = settings.updates
    if algorithm in EPSILON_GREEDY:
        model.exploration_rate = settings.exploration_rate or 0.0
    return model


def _described_normalization(policy: SB3Policy) -> tuple[NormalizationSettings | None, dict[str, Array]]:
    normalization = policy.normalization
    owner = getattr(normalization, "__self__", None)
    if isinstance(owner, VecNormalize) and normalization == owner.normalize_obs:
        normalization = frozen(owner)
    if normalization is None:
        return None, {}
    if not isinstance(normalization, ObservationNormalization):
        raise ValueError(f"its normalization {_origin(normalization)} is custom code, which cannot be stored")
    mean, variance = normalization.mean, normalization.variance
    if not isinstance(mean, Mapping) and np.shape(mean) != policy.model.observation_space.shape:
        raise ValueError(
            f"VecNormalize normalises images of shape {np.shape(mean)} before SB3 transposes them; an agent "
            "with this order cannot be stored: pass agent= to tpd.load"
        )
    clip = float(normalization.clip) if np.isfinite(normalization.clip) else None
    keys: list[str] | None = None
    arrays: dict[str, Any] = {MEAN: mean, VARIANCE: variance}
    if isinstance(mean, Mapping):
        keys = list(mean)
        arrays = {f"{name}.{key}": arrays[name][key] for name in arrays for key in keys}
    settings = NormalizationSettings(epsilon=normalization.epsilon, clip=clip, keys=keys)
    return settings, {name: np.asarray(values) for name, values in arrays.items()}


def _normalization(
    settings: NormalizationSettings, stored: StoredArrays, space: Space
) -> ObservationNormalization:
    clip = np.inf if settings.clip is None else settings.clip

    def taken(name: str, part: Space) -> Array:
        values = stored.take(name, part.shape or (), REAL)
        if name.startswith(VARIANCE):
            stored.check(name, values >= 0)
        return values

    if settings.keys is None:
        mean, variance = (taken(name, space) for name in (MEAN, VARIANCE))
        return ObservationNormalization(mean, variance, settings.epsilon, clip)
    if not isinstance(space, spaces.Dict) and settings.keys:
        raise ValueError(f"normalization.keys: {settings.keys} need Dict observations, got {space}")
    parts = space.spaces if isinstance(space, spaces.Dict) else {}
    if unknown := [key for key in settings.keys if key not in parts]:
        raise ValueError(f"normalization.keys must be among {', '.join(parts)}, got {unknown[0]!r}")
    means, variances = (
        {key: taken(f"{name}.{key}", parts[key]) for key in settings.keys} for name in (MEAN, VARIANCE)
    )
    return ObservationNormalization(means, variances, settings.epsilon, clip)
