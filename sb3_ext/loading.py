"""Loads Stable-Baselines3 agents from the plain parts of their zip, without unpickling."""

import copy
import inspect
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import ARS, QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import BasePolicy
from stable_baselines3.common.preprocessing import is_image_space, is_image_space_channels_first
from stable_baselines3.common.vec_env import VecTransposeImage

from sb3_ext.architecture import TRUST, Algorithm, Space, policy_kwargs
from sb3_ext.unpickling import SavedAgent, one_line, read_agent
from sb3_ext.weights import Weights
from tpd.guards.settings import boolean
from tpd.predictors.network.state import LARGEST_WEIGHT

Env = gym.Env[Any, Any]

# order matters: the sign of one algorithm also holds for some of those below it
SIGNS: Mapping[Algorithm, Callable[[SavedAgent], bool]] = {
    ARS: lambda agent: "n_delta" in agent.settings,
    TQC: lambda agent: "top_quantiles_to_drop_per_net" in agent.settings,
    SAC: lambda agent: "target_entropy" in agent.settings,
    DDPG: lambda agent: (
        [agent.settings.get(name) for name in ("policy_delay", "target_noise_clip")] == [1, 0]
    ),
    TD3: lambda agent: "policy_delay" in agent.settings,
    QRDQN: lambda agent: any(name.startswith("quantile_net.") for name in agent.weights),
    DQN: lambda agent: "exploration_fraction" in agent.settings,
    RecurrentPPO: lambda agent: any(name.startswith("lstm_actor.") for name in agent.weights),
    MaskablePPO: lambda agent: any(
        ".maskable." in agent.class_name(setting) for setting in ("policy_class", "rollout_buffer_class")
    ),
    TRPO: lambda agent: "cg_max_steps" in agent.settings,
    PPO: lambda agent: "n_epochs" in agent.settings,
    A2C: lambda agent: "gae_lambda" in agent.settings,
}
ALGORITHMS = {algorithm.__name__: algorithm for algorithm in SIGNS}
MODULES = {kind: {policy.__module__ for policy in kind.policy_aliases.values()} for kind in SIGNS}
OLD_MODULES = dict.fromkeys(
    ("stable_baselines3.ppo.policies", "stable_baselines3.a2c.policies"), "stable_baselines3.common.policies"
)

EPSILON_GREEDY = (DQN, QRDQN)
UNFIT = (ArithmeticError, AssertionError, AttributeError, RuntimeError, TypeError, ValueError)


def load_agent(
    path: str | Path, env: Env, *, algorithm: str | None = None, trust: bool = False
) -> BaseAlgorithm:
    """Load the agent of a zip as a model that plays in this environment; it has no buffers for training.

    Spaces come from the environment, settings and weights from the plain parts of the zip. Its pickles are
    run only if it is trusted, and then by Stable-Baselines3's own `load`.
    algorithm: must be given if it cannot be found in the zip.
    """
    file = zip_file(path)
    try:
        agent = read_agent(file)
        chosen = _algorithm(agent, algorithm)
        if boolean("trust", trust):
            return _trusted(file, agent, chosen, env)
        return _rebuilt(agent, chosen, env)
    except ValueError as error:
        raise ValueError(one_line(file, error)) from error


def seems_normalised(path: str | Path) -> bool:
    """Whether an agent was trained under VecNormalize; only on-policy algorithms show it."""
    settings = read_agent(zip_file(path)).settings
    return "gae_lambda" in settings and settings.get("_last_original_obs") is not None


def zip_file(path: str | Path) -> Path:
    """The path of the zip; the suffix may be left out, as in SB3."""
    file = Path(path)
    suffixed = file.with_name(f"{file.name}.zip")
    return suffixed if not file.exists() and suffixed.exists() else file


def _algorithm(agent: SavedAgent, name: str | None) -> Algorithm:
    if name is None:
        problem = "its algorithm cannot be detected: set algorithm to"
        found = [algorithm for algorithm, has_sign in SIGNS.items() if has_sign(agent)]
    else:
        problem = f"algorithm={name} is not"
        found = [algorithm for known, algorithm in ALGORITHMS.items() if known.casefold() == name.casefold()]
    if not found:
        raise ValueError(f"{problem} one of {', '.join(ALGORITHMS)}")
    return found[0]


def _rebuilt(agent: SavedAgent, algorithm: Algorithm, env: Env) -> BaseAlgorithm:
    observation_space, action_space = _spaces(agent, env)
    policy_class = _policy_class(agent, algorithm, observation_space)
    arguments = policy_kwargs(agent, algorithm, policy_class, action_space)
    policy = build_policy(agent.weights, policy_class, observation_space, action_space, arguments)
    model = playing_model(algorithm, policy, arguments)
    # ARS sums undiscounted rewards
    model.gamma = 1.0 if algorithm is ARS else _fraction(agent, "gamma")
    if algorithm in EPSILON_GREEDY:
        model.exploration_rate = _fraction(agent, "exploration_rate")
    assert isinstance(model, BaseAlgorithm)
    return model


def playing_model(algorithm: Algorithm, policy: Any, arguments: dict[str, Any]) -> Any:
    """A model that plays by this policy, built with these arguments, without buffers for training."""
    model: Any = algorithm(type(policy), env=None, device="cpu", _init_setup_model=False)  # type: ignore[call-arg]
    model.observation_space, model.action_space = policy.observation_space, policy.action_space
    model.policy, model.policy_kwargs, model.n_envs = policy, arguments, 1
    model.use_sde = bool(arguments.get("use_sde"))
    if hasattr(model, "_create_aliases"):
        model._create_aliases()
    return model


def _fraction(agent: SavedAgent, name: str) -> float:
    value = agent.settings.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        if isinstance(value, dict):
            raise ValueError(f"stores {name} as a pickle, which is not executed; {TRUST}")
        raise ValueError(f"has {name}={value}, expected a number in [0, 1]")
    return float(value)


def _spaces(agent: SavedAgent, env: Env) -> tuple[Space, Space]:
    """The environment's own spaces, if they match those that the agent was trained with."""
    _check_space(env.action_space, agent.settings.get("action_space"), "actions")
    observations = _observation_space(env.observation_space, agent.settings.get("observation_space"))
    return observations, copy.deepcopy(env.action_space)


def _observation_space(space: Space, saved: Any) -> Space:
    """The space as SB3 shows it to an agent: images channels first, Dict keys in SB3's order."""
    if isinstance(space, spaces.Dict):
        _check_space(space, saved, "observations")
        keys = list(space.spaces)
        if isinstance(saved, dict) and "spaces" in saved:
            listed = str(saved["spaces"])
            places = {key: max(listed.find(f"{key!r}: "), listed.find(f"({key!r}, ")) for key in keys}
            if min(places.values()) < 0:
                raise ValueError(f"is an agent for observations {listed}, not for {space}")
            keys.sort(key=places.__getitem__)
        return spaces.Dict(OrderedDict((key, _observation_space(space[key], None)) for key in keys))
    if isinstance(space, spaces.Box) and is_image_space(space):
        if isinstance(saved, dict) and saved.get("dtype") == "float32":  # under VecNormalize
            space = spaces.Box(-np.inf, np.inf, space.shape)
        elif not is_image_space_channels_first(space):
            space = VecTransposeImage.transpose_space(space)
    _check_space(space, saved, "observations")
    return copy.deepcopy(space)


def _check_space(space: Space, saved: Any, what: str) -> None:
    """Refuse an environment whose space differs from the agent's, as far as the zip shows it."""
    if not isinstance(saved, dict):
        return
    kind = re.search(r"\.(Box|Discrete|MultiDiscrete|MultiBinary|Dict|Tuple)'>$", str(saved.get(":type:")))
    shape = saved.get("_shape", saved.get("shape"))
    fits = (kind is None or kind[1] == type(space).__name__) and shape in (None, list(space.shape or ()))
    # bounds of observations differ between versions of the same environment
    numbers = ("n", "nvec", "low", "high") if what == "actions" else ("n", "nvec")
    for name in numbers:
        if name in saved and hasattr(space, name):
            fits &= _same_numbers(str(saved[name]), np.asarray(getattr(space, name)))
    if not fits:
        its = _in_words(kind[1] if kind else "a space", shape, {n: saved[n] for n in numbers if n in saved})
        own = {name: getattr(space, name) for name in numbers if hasattr(space, name)}
        here = _in_words(type(space).__name__, space.shape, own)
        raise ValueError(
            f"is an agent for {what} of {its}, but the environment has {here}: use the environment of its "
            "training"
        )


def _in_words(kind: str, shape: Sequence[int] | None, numbers: Mapping[str, Any]) -> str:
    """The properties of a space by which agents and environments are compared, as text."""
    of_shape = f" of shape {tuple(shape)}" if shape else ""
    return ", ".join([kind + of_shape, *(f"{n}={' '.join(str(v).split())}" for n, v in numbers.items())])


def _same_numbers(text: str, numbers: Any) -> bool:
    """Whether NumPy's print of an array shows these numbers; abbreviated prints always pass."""
    found = [float(number) for number in re.findall(r"[-+]?(?:inf|\d+\.?\d*(?:e[-+]?\d+)?)", text)]
    return "..." in text or (len(found) == numbers.size and np.allclose(found, numbers.ravel(), rtol=1e-4))


def _policy_class(agent: SavedAgent, algorithm: Algorithm, observations: Space) -> Any:
    """The policy class for these observations and weights, if the agent's class belongs to its algorithm."""
    saved = agent.class_name("policy_class")
    module, _, name = saved.rpartition(".")
    module = OLD_MODULES.get(module, module)
    if module not in MODULES[algorithm]:
        if others := [other.__name__ for other in SIGNS if module in MODULES[other]]:
            raise ValueError(f"is an agent of {' or '.join(others)}, not of {algorithm.__name__}")
        raise ValueError(
            f"its policy class ({saved or 'unknown'}) is not one of SB3's for {algorithm.__name__}; {TRUST}"
        )
    kind = "Linear" if name == "ARSLinearPolicy" else "Mlp"
    if isinstance(observations, spaces.Dict):
        kind = "MultiInput"
    elif any("features_extractor.cnn." in weight for weight in agent.weights):
        kind = "Cnn"
    for alias, policy in algorithm.policy_aliases.items():
        if alias.startswith(kind):
            return policy
    raise ValueError(f"is an agent of {algorithm.__name__}, which has no policy for {observations}")


def build_policy(
    weights: Weights, policy_class: Any, observations: Space, actions: Space, arguments: dict[str, Any]
) -> Any:
    """A policy of this class with these weights, all of which must fit."""
    if "lr_schedule" in inspect.signature(policy_class).parameters:
        arguments = {**arguments, "lr_schedule": BasePolicy._dummy_schedule}
    unfit = f"does not fit observations {observations} and actions {actions}"
    with torch.random.fork_rng(devices=[]):  # the initial weights are replaced anyway
        try:
            policy = policy_class(observations, actions, **arguments)
        except UNFIT as error:
            reason = str(error).partition("\n")[0]
            raise ValueError(f"{unfit}: {reason}") from error
        given, complaints = _fitted(weights, policy.state_dict())
        if complaints:
            raise ValueError(f"{unfit}: {complaints[0]}")
        for name, _ in policy.named_parameters():
            if not given[name].is_floating_point():
                raise ValueError(f"its weights {name} are {given[name].dtype}, expected real numbers")
            if given[name].numel() and (largest := float(given[name].abs().max())) > LARGEST_WEIGHT:
                raise ValueError(f"its weights {name} reach {largest:g}: diverged or corrupted")
        policy.load_state_dict(given)
        if arguments.get("use_sde"):
            policy.reset_noise()
    policy.set_training_mode(False)
    return policy


def _fitted(weights: Weights, due: Weights) -> tuple[Weights, list[str]]:
    """The weights under their expected names, and the reasons why some do not fit."""
    given = dict(weights)
    for name in due.keys() - given.keys():  # before SB3 1.7, a shared extractor had a single name
        shared = re.sub(r"^(pi|vf)_features_extractor\.", "features_extractor.", name)
        if shared in given:
            given[name] = given[shared]
    for name in given.keys() - due.keys():  # before SB3 1.0, another name of the actor's extractor
        if name.startswith("features_extractor.") and any(other.endswith(f".{name}") for other in due):
            del given[name]
    complaints = [f"it lacks {name}" for name in sorted(due.keys() - given.keys())]
    complaints += [f"it has the unexpected {name}" for name in sorted(given.keys() - due.keys())]
    complaints += [
        f"its {name} has shape {list(given[name].shape)} instead of {list(due[name].shape)}"
        for name in sorted(due.keys() & given.keys())
        if given[name].shape != due[name].shape
    ]
    return given, complaints


def _trusted(file: Path, agent: SavedAgent, algorithm: Algorithm, env: Env) -> BaseAlgorithm:
    """Stable-Baselines3's own `load`, without what only training needs."""
    schedules = ("lr_schedule", "exploration_schedule", "delta_std_schedule")
    last = ("_last_obs", "_last_original_obs", "_last_episode_starts", "ep_info_buffer", "ep_success_buffer")
    training = ("action_noise", "clip_range_vf", "replay_buffer_class", "rollout_buffer_class")
    numbers = {"learning_rate": 0.0, "clip_range": 0.0, "target_entropy": -1.0}
    observation_space, action_space = _spaces(agent, env)
    replaced: dict[str, Any] = {
        **dict.fromkeys(schedules, BasePolicy._dummy_schedule),
        **dict.fromkeys(last + training),
        **numbers,
        "train_freq": 1,
        "buffer_size": 1,
        "replay_buffer_kwargs": {},
        "observation_space": observation_space,
        "action_space": action_space,
    }
    try:
        model: Any = algorithm.load(file, device="cpu", custom_objects=replaced)
    except Exception as error:  # a pickle can run anything, so anything can be raised
        reason = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
        raise ValueError(f"cannot be loaded as an agent of {algorithm.__name__} ({reason})") from error
    if algorithm is ARS:
        model.gamma = 1.0
    assert isinstance(model, BaseAlgorithm)
    return model
