"""Finds the network architecture of a saved agent from its settings and the shapes of its weights."""

import inspect
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces
from sb3_contrib import ARS, QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.preprocessing import is_image_space
from stable_baselines3.common.torch_layers import CombinedExtractor, FlattenExtractor, NatureCNN
from torch.nn.modules import activation

from sb3_ext.unpickling import SavedAgent
from sb3_ext.weights import Weights

Algorithm = type[BaseAlgorithm]
Space = spaces.Space[Any]

TRUST = "if you trust the file, set trust=true, which runs its code"

# the layers of each head of net_arch, and which of these networks lack an output layer
ACTOR_CRITIC = {"pi": "mlp_extractor.policy_net", "vf": "mlp_extractor.value_net"}
NETWORKS: Mapping[Algorithm, Mapping[str, str]] = {
    **dict.fromkeys((A2C, MaskablePPO, PPO, RecurrentPPO, TRPO), ACTOR_CRITIC),
    **{algorithm: {"pi": "actor.latent_pi", "qf": "critic.qf0"} for algorithm in (SAC, TQC)},
    **{algorithm: {"pi": "actor.mu", "qf": "critic.qf0"} for algorithm in (DDPG, TD3)},
    ARS: {"": "action_net"},
    DQN: {"": "q_net.q_net"},
    QRDQN: {"": "quantile_net.quantile_net"},
}
WITHOUT_OUTPUT = {"actor.latent_pi", *ACTOR_CRITIC.values()}

ACTIVATIONS = {
    str(found): found
    for found in vars(activation).values()
    if isinstance(found, type) and found.__module__ == activation.__name__
}
EXTRACTORS = {str(extractor): extractor for extractor in (FlattenExtractor, NatureCNN, CombinedExtractor)}
KERNELS_AND_STRIDES = ((8, 4), (4, 2), (3, 1))
"""Of the convolutions of NatureCNN; the last one has 64 channels."""
LSTM_OPTIONS = {"bias", "dropout"}
SWITCHES = {"enable_critic_lstm", "full_std", "normalize_images", "share_features_extractor", "shared_lstm"}
SWITCHES |= {"squash_output", "use_expln", "with_bias"}
WITHOUT_EFFECT = {":serialized:", ":type:", "device", "log_std_init", "optimizer_class", "optimizer_kwargs"}
WITHOUT_EFFECT |= {"ortho_init", "use_sde"}  # only the use_sde beside policy_kwargs has an effect


def policy_kwargs(
    agent: SavedAgent, algorithm: Algorithm, policy_class: Any, actions: Space
) -> dict[str, Any]:
    """The keyword arguments to build a policy with these settings and weights."""
    stated = agent.settings.get("policy_kwargs", {})
    if not isinstance(stated, dict):
        raise ValueError(f"has policy_kwargs={stated}, expected a dict")
    sizes = _sizes(agent, algorithm, actions)
    extractor_options: dict[str, Any] = {}
    arguments: dict[str, Any] = {}
    for name, value in stated.items():
        if value is None or name in WITHOUT_EFFECT:
            continue
        if name in sizes:
            _check_size(name, value, sizes[name])
        elif name in SWITCHES and isinstance(value, bool):
            arguments[name] = value
        elif name == "clip_mean" and isinstance(value, int | float):
            arguments[name] = float(value)
        elif name == "activation_fn" and str(value) in ACTIVATIONS:
            arguments[name] = ACTIVATIONS[str(value)]
        elif name == "features_extractor_class" and str(value) in EXTRACTORS:
            arguments[name] = EXTRACTORS[str(value)]
        elif name == "lstm_kwargs" and isinstance(value, dict) and value.keys() <= LSTM_OPTIONS:
            arguments[name] = value
        elif name == "features_extractor_kwargs" and isinstance(value, dict):
            extractor_options = value
        else:
            raise ValueError(f"has {name}={value} in its policy_kwargs, which is not a plain value; {TRUST}")
    arguments |= sizes
    if extractor := _extractor_arguments(agent.weights, extractor_options):
        arguments["features_extractor_kwargs"] = extractor
    known = inspect.signature(policy_class).parameters
    if "use_sde" in known:
        arguments["use_sde"] = agent.settings.get("use_sde") is True
    if "net_arch" not in known:
        del arguments["net_arch"]
    return arguments


def _sizes(agent: SavedAgent, algorithm: Algorithm, actions: Space) -> dict[str, Any]:
    """The sizes of the networks, from the shapes of the weights."""
    hidden, outputs = {}, {}
    for head, network in NETWORKS[algorithm].items():
        layers = agent.layers(network)
        hidden[head] = layers if network in WITHOUT_OUTPUT else layers[:-1]
        outputs[head] = layers[-1] if layers else 0
    sizes: dict[str, Any] = {"net_arch": hidden.get("", hidden)}
    if "qf" in hidden:
        critics = (agent.layers(f"critic.qf{i}") for i in itertools.count())
        first = [*hidden["qf"], outputs["qf"]]
        sizes["n_critics"] = sum(1 for _ in itertools.takewhile(first.__eq__, critics))
    if algorithm is TQC:
        sizes["n_quantiles"] = outputs["qf"]
    if algorithm is QRDQN and isinstance(actions, spaces.Discrete):
        sizes["n_quantiles"] = outputs[""] // int(actions.n)
    if algorithm is RecurrentPPO:
        recurrent = [list(w.shape) for name, w in agent.weights.items() if "lstm_actor.weight_hh_l" in name]
        width = recurrent[0][-1] if recurrent else 0
        if not recurrent or any(shape != [4 * width, width] for shape in recurrent):
            raise ValueError(f"has an LSTM with weights of the unexpected shapes {recurrent}")
        sizes |= {"lstm_hidden_size": width, "n_lstm_layers": len(recurrent)}
    return sizes


def _extractor_arguments(weights: Weights, stated: Mapping[str, Any]) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for name, weight in weights.items():
        if "features_extractor." in name and name.endswith(".linear.0.weight"):
            arguments["cnn_output_dim" if ".extractors." in name else "features_dim"] = weight.shape[0]
    for name, value in stated.items():
        if name in arguments:
            _check_size(name, value, arguments[name])
        elif name == "normalized_image" and isinstance(value, bool):
            arguments[name] = value
        elif name != "cnn_output_dim":  # has no effect without images
            raise ValueError(
                f"has {name}={value} for its features extractor, which is not a plain value; {TRUST}"
            )
    return arguments


def _check_size(name: str, stated: Any, found: Any) -> None:
    if name == "net_arch":  # anything but a plain list of layers is inferred from the weights
        heads = found if isinstance(found, dict) else {"": found}
        plain = isinstance(stated, list | dict)
        agrees = not plain or all(_stated_layers(stated, head) == layers for head, layers in heads.items())
    else:
        agrees = stated == found
    if not agrees:
        raise ValueError(f"is inconsistent: {name} is {stated} in its settings, but {found} by its weights")


def _stated_layers(net_arch: Any, head: str) -> list[Any]:
    """The layers of one head, in any form that net_arch has had: [64], {pi: [64]} or [64, {pi: [64]}]."""
    parts = net_arch if isinstance(net_arch, list) else [net_arch]
    layers: list[Any] = []
    for part in parts:
        own = part.get(head, []) if isinstance(part, dict) else part
        layers += own if isinstance(own, list) else [own]
    return layers


def check_spaces(observations: Space, actions: Space, weights: Weights, images: bool) -> None:
    """Refuse spaces larger than the weights, before networks for them are allocated."""
    if empty := [name for name, weight in weights.items() if 0 in weight.shape]:
        raise ValueError(f"its weights {empty[0]} are empty")
    matrices = [weight.shape for weight in weights.values() if weight.dim() == 2]
    outputs, inputs = (max((shape[axis] for shape in matrices), default=0) for axis in (0, 1))
    parts: list[Space] = [observations]
    if isinstance(observations, spaces.Dict):
        parts, images = [observations[key] for key in observations], True
    due = max((_features(part, images) for part in parts), default=0)
    if due > inputs or _features(actions, images=False) > outputs:
        raise ValueError(
            f"observations {observations} and actions {actions} do not fit weights of shapes "
            f"{[list(shape) for shape in matrices]}"
        )


def _features(space: Space, images: bool) -> int:
    """Number of inputs that a network gets for this space, or of actions that it distinguishes."""
    if isinstance(space, spaces.Discrete):
        return int(space.n)
    if isinstance(space, spaces.MultiDiscrete):
        return int(np.sum(space.nvec))
    shape = space.shape or ()
    if not images or not isinstance(space, spaces.Box) or not is_image_space(space):
        return int(np.prod(shape, dtype=np.int64))
    sizes = list(shape[1:])
    for kernel, stride in KERNELS_AND_STRIDES:
        sizes = [(size - kernel) // stride + 1 for size in sizes]
    return 64 * int(np.prod(sizes, dtype=np.int64))
