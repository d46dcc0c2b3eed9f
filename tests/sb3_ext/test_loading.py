"""Saved agents play as they did when they were saved, and nothing of their files is run."""

import base64
import contextlib
import functools
import io
import json
import os
import pickle
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from sb3_contrib import ARS, QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common import save_util
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

from sb3_ext.loading import load_agent
from sb3_ext.normalization import load_normalization
from tpd.core.types import Array

AGENTS = Path(__file__).parents[3] / "shared" / "agents"

IMAGE = spaces.Box(0, 255, (36, 40, 3), np.uint8)
VECTOR = spaces.Box(-1, 1, (3,))
MIXED = spaces.Dict({"image": IMAGE, "number": spaces.Discrete(4), "vector": VECTOR})
JOINTS = spaces.Box(-1, 2, (2,))


class Toy(gym.Env[Any, Any]):
    """Shows random observations for a few steps, whatever is done."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observations, actions

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, Any]:
        super().reset(seed=seed)
        self.left = 5
        return self.observation_space.sample(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return self.observation_space.sample(), float(np.sum(action)), self.left == 0, False, {}

    def action_masks(self) -> Array:
        """MaskablePPO asks for them."""
        assert isinstance(self.action_space, spaces.Discrete)
        return np.ones(self.action_space.n, dtype=bool)


ON_POLICY = {"n_steps": 8}
OFF_POLICY = {"buffer_size": 20, "learning_starts": 4, "batch_size": 4}
SHORT: dict[type[BaseAlgorithm], dict[str, Any]] = {
    **dict.fromkeys((DQN, QRDQN, SAC, TD3, DDPG, TQC), OFF_POLICY),
    **dict.fromkeys((PPO, MaskablePPO, RecurrentPPO, TRPO), ON_POLICY | {"batch_size": 8}),
    A2C: ON_POLICY,
    ARS: {"n_delta": 1},
}


def case(
    algorithm: type[BaseAlgorithm],
    observations: spaces.Space[Any] = VECTOR,
    actions: spaces.Space[Any] = JOINTS,
    policy: str = "MlpPolicy",
    policy_kwargs: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> Any:
    named = {key: str(getattr(value, "__name__", value)) for key, value in (policy_kwargs or {}).items()}
    name = " ".join(
        [algorithm.__name__, policy, *(f"{key}={value}" for key, value in {**named, **kwargs}.items())]
    )
    return pytest.param(
        algorithm, Toy(observations, actions), policy, dict(policy_kwargs or {}), kwargs, id=name
    )


THREE = spaces.Discrete(3)
LSTM = {"lstm_hidden_size": 6, "net_arch": [5]}
CASES = [
    case(PPO, actions=THREE),
    case(PPO, actions=THREE, policy_kwargs={"net_arch": {"pi": [8, 6], "vf": [5]}, "activation_fn": nn.ELU}),
    case(PPO, policy_kwargs={"net_arch": [], "log_std_init": -1.0, "ortho_init": False}, gamma=0.5),
    case(PPO, policy_kwargs={"net_arch": [7], "squash_output": True, "full_std": False}, use_sde=True),
    case(PPO, actions=spaces.MultiDiscrete([2, 3]), policy_kwargs={"activation_fn": nn.PReLU}),
    case(PPO, spaces.MultiDiscrete([3, 2]), spaces.MultiBinary(3), policy_kwargs={"net_arch": {"pi": [4]}}),
    case(PPO, IMAGE, THREE, policy_kwargs={"net_arch": [6], "activation_fn": nn.Mish}),
    case(PPO, IMAGE, JOINTS, "CnnPolicy", {"features_extractor_kwargs": {"features_dim": 8}}),
    case(PPO, IMAGE, THREE, "CnnPolicy", {"share_features_extractor": False, "net_arch": [4]}),
    case(PPO, MIXED, JOINTS, "MultiInputPolicy", {"features_extractor_kwargs": {"cnn_output_dim": 8}}),
    case(A2C, actions=THREE, policy_kwargs={"net_arch": [8], "activation_fn": nn.LeakyReLU}),
    case(A2C, policy_kwargs={"net_arch": [8], "use_expln": True}, use_sde=True),
    case(DQN, spaces.Discrete(5), THREE),
    case(DQN, actions=THREE, policy_kwargs={"net_arch": [9, 5], "activation_fn": nn.GELU}, gamma=0.9),
    case(DQN, IMAGE, THREE, "CnnPolicy", {"features_extractor_class": FlattenExtractor}),
    case(DQN, IMAGE, THREE, "CnnPolicy", {"normalize_images": False}),
    case(DQN, MIXED, THREE, "MultiInputPolicy"),
    case(
        SAC, policy_kwargs={"net_arch": {"pi": [6], "qf": [7, 5]}, "n_critics": 3, "activation_fn": nn.Tanh}
    ),
    case(SAC, policy_kwargs={"net_arch": [6], "clip_mean": 0.1}, use_sde=True),
    case(SAC, policy_kwargs={"net_arch": [6], "clip_mean": 0.0}, use_sde=True),
    case(SAC, IMAGE, JOINTS, "CnnPolicy", {"net_arch": [6], "share_features_extractor": True}),
    case(SAC, MIXED, JOINTS, "MultiInputPolicy", {"net_arch": [6]}),
    case(TD3, policy_kwargs={"net_arch": {"pi": [6, 5], "qf": [7]}, "activation_fn": nn.SiLU}),
    case(TD3, IMAGE, JOINTS, "CnnPolicy", {"net_arch": [], "share_features_extractor": True}),
    case(DDPG, policy_kwargs={"net_arch": [6], "activation_fn": nn.Softplus}),
    case(MaskablePPO, actions=THREE, policy_kwargs={"net_arch": [8], "activation_fn": nn.ReLU}),
    case(QRDQN, actions=THREE, policy_kwargs={"net_arch": [8], "n_quantiles": 7, "activation_fn": nn.CELU}),
    case(TRPO, actions=THREE, policy_kwargs={"net_arch": [8], "activation_fn": nn.ReLU6}),
    case(TQC, policy_kwargs={"net_arch": [6], "n_quantiles": 5, "activation_fn": nn.SELU}),
    case(TQC, policy_kwargs={"net_arch": [6], "n_critics": 1}, use_sde=True),
    case(
        RecurrentPPO, VECTOR, JOINTS, "MlpLstmPolicy", {**LSTM, "n_lstm_layers": 2, "activation_fn": nn.ELU}
    ),
    case(RecurrentPPO, VECTOR, JOINTS, "MlpLstmPolicy", {**LSTM, "enable_critic_lstm": False}, use_sde=True),
    case(
        RecurrentPPO,
        VECTOR,
        JOINTS,
        "MlpLstmPolicy",
        {**LSTM, "enable_critic_lstm": False, "shared_lstm": True},
    ),
    case(RecurrentPPO, IMAGE, JOINTS, "CnnLstmPolicy", {**LSTM, "lstm_kwargs": {"bias": False}}),
    case(ARS, policy_kwargs={"net_arch": [6], "activation_fn": nn.Tanh}),
    case(ARS, policy_kwargs={"net_arch": [6], "squash_output": False, "with_bias": False}),
    case(ARS, policy="LinearPolicy"),
    case(ARS, VECTOR, THREE, "LinearPolicy", {"with_bias": True}),
]


def trained(
    algorithm: type[BaseAlgorithm],
    env: Toy | VecNormalize,
    policy: str,
    policy_kwargs: dict[str, Any],
    kwargs: dict[str, Any],
) -> BaseAlgorithm:
    make: Any = algorithm
    model: Any = make(
        policy, env, policy_kwargs=policy_kwargs, seed=0, device="cpu", **SHORT[algorithm], **kwargs
    )
    model.learn(8)
    # A few steps leave most actions the same for all observations, which would prove little.
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in model.policy.parameters():
            weight.add_(0.4 * torch.randn_like(weight))
    assert isinstance(model, BaseAlgorithm)
    return model


def ppo(
    actions: spaces.Space[Any] = THREE, observations: spaces.Space[Any] = VECTOR, **policy: Any
) -> BaseAlgorithm:
    policy_class = "MultiInputPolicy" if isinstance(observations, spaces.Dict) else "MlpPolicy"
    return trained(PPO, Toy(observations, actions), policy_class, {"net_arch": [8], **policy}, {})


@functools.cache
def saved_ppo() -> bytes:
    """The zip of a plain agent for three actions."""
    content = io.BytesIO()
    ppo().save(content)
    return content.getvalue()


def batch_of(space: spaces.Space[Any], count: int = 50) -> Any:
    space.seed(1)
    if isinstance(space, spaces.Dict):
        return {key: batch_of(part) for key, part in space.spaces.items()}
    samples = np.stack([space.sample() for _ in range(count)])
    if space is IMAGE:  # of random images all look alike, so let them differ in brightness
        return (samples * np.linspace(0, 1, count).reshape(-1, 1, 1, 1)).astype(np.uint8)
    return samples


def actions_of(model: BaseAlgorithm, observations: Any) -> Array:
    model.set_random_seed(0)
    if isinstance(model, RecurrentPPO):
        first, state = model.predict(observations, deterministic=True)
        later, _ = model.predict(observations, state=state, episode_start=np.zeros(50), deterministic=True)
        return np.concatenate([first, later])
    return model.predict(observations, deterministic=True)[0]


def assert_plays_alike(model: BaseAlgorithm, other: BaseAlgorithm, observations: Any) -> None:
    actions = actions_of(model, observations)
    assert len(np.unique(actions, axis=0)) > 1
    np.testing.assert_array_equal(actions, actions_of(other, observations))


class Bomb:
    """Leaves a folder behind when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (str(self.trace),)


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    """A change that takes settings away."""

    def drop(settings: dict[str, Any]) -> None:
        for name in names:
            del settings[name]

    return drop


def entries_of(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_zip(file: Path, entries: Mapping[str, bytes], compression: int = zipfile.ZIP_STORED) -> None:
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, content in entries.items():
            archive.writestr(name, content)


def settings_of(file: Path) -> dict[str, Any]:
    settings = json.loads(entries_of(file)["data"])
    assert isinstance(settings, dict)
    return settings


def change(
    file: Path,
    settings: Callable[[dict[str, Any]], None] = lambda _: None,
    weights: Callable[[dict[str, Any]], object] = lambda weights: weights,
    legacy: bool = False,
) -> None:
    """Write the zip again, with other settings or weights."""
    entries = entries_of(file)
    data = json.loads(entries["data"])
    settings(data)
    changed = io.BytesIO()
    loaded = torch.load(io.BytesIO(entries["policy.pth"]), weights_only=True)
    torch.save(weights(loaded), changed, _use_new_zipfile_serialization=not legacy)
    write_zip(file, {**entries, "data": json.dumps(data).encode(), "policy.pth": changed.getvalue()})


def poison(file: Path, trace: Path) -> None:
    """Put a bomb in place of every pickle that is not the weights."""
    bomb = pickle.dumps(Bomb(trace))
    settings = settings_of(file)
    for value in settings.values():
        if isinstance(value, dict) and ":serialized:" in value:
            value[":serialized:"] = base64.b64encode(bomb).decode()
    entries = entries_of(file)
    others = {name: bomb for name in entries if name.endswith(".pth") and name != "policy.pth"}
    write_zip(file, {**entries, **others, "data": json.dumps(settings).encode()})


def refused(file: Path, env: gym.Env[Any, Any], **options: Any) -> str:
    """The one line with which a file is refused, without its name."""
    with pytest.raises(ValueError, match=re.escape(str(file))) as caught:
        load_agent(file, env, **options)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 700
    return message.removeprefix(f"{file}: ")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "agent.zip"


@pytest.mark.parametrize(("algorithm", "env", "policy", "policy_kwargs", "kwargs"), CASES)
def test_plays_as_it_was_saved(
    algorithm: type[BaseAlgorithm],
    env: Toy,
    policy: str,
    policy_kwargs: dict[str, Any],
    kwargs: dict[str, Any],
    file: Path,
) -> None:
    model = trained(algorithm, env, policy, policy_kwargs, kwargs)
    model.save(file)
    observations = batch_of(env.observation_space)
    trusted = load_agent(file, env, trust=True)
    assert type(trusted) is algorithm
    assert_plays_alike(model, trusted, observations)
    poison(file, file.with_name("trace"))
    random_state = torch.get_rng_state()
    loaded = load_agent(file, env)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert not file.with_name("trace").exists()
    assert type(loaded) is algorithm
    assert_plays_alike(model, loaded, observations)
    weights = loaded.policy.state_dict()
    assert all(torch.equal(weight, weights[name]) for name, weight in model.policy.state_dict().items())
    assert getattr(loaded, "gamma", None) == getattr(model, "gamma", 1.0)
    assert loaded.use_sde == model.use_sde
    assert getattr(loaded, "exploration_rate", None) == getattr(model, "exploration_rate", None)
    assert loaded.observation_space == model.observation_space
    assert loaded.action_space == model.action_space
    assert getattr(loaded, "replay_buffer", None) is None
    assert loaded.predict(env.observation_space.sample())[0] in loaded.action_space


def test_the_poison_of_these_tests_works(file: Path) -> None:
    model = ppo()
    model.save(file)
    poison(file, file.with_name("trace"))
    with pytest.raises(Exception):  # noqa: B017, PT011  # what is left is no agent
        PPO.load(file)
    assert file.with_name("trace").exists()


def test_no_pickle_is_read(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    env = Toy(VECTOR, THREE)
    file.write_bytes(saved_ppo())

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a pickle was read")

    for name in ("pickle.load", "pickle.loads", "cloudpickle.loads"):
        monkeypatch.setattr(name, refuse)
    monkeypatch.setattr(save_util, "json_to_data", refuse)
    assert isinstance(load_agent(file, env), PPO)
    assert refused(file, env, trust=True).startswith("cannot be loaded as an agent of PPO (AssertionError")


def test_the_environment_keeps_its_own_random_numbers(file: Path) -> None:
    env = Toy(spaces.Box(0, 255, (3, 36, 40), np.uint8), THREE)
    trained(PPO, env, "CnnPolicy", {}, {}).save(file)
    env.observation_space.seed(3)
    load_agent(file, env)
    first = env.observation_space.sample()
    env.observation_space.seed(3)
    np.testing.assert_array_equal(first, env.observation_space.sample())


def test_the_ending_of_the_name_may_be_left_out(file: Path) -> None:
    file.write_bytes(saved_ppo())
    assert isinstance(load_agent(file.with_suffix(""), Toy(VECTOR, THREE)), PPO)


def test_an_algorithm_can_be_named(file: Path) -> None:
    env = Toy(VECTOR, THREE)
    model = ppo()
    model.save(file)
    named = load_agent(file, env, algorithm="a2c")
    assert type(named) is A2C
    assert_plays_alike(model, named, batch_of(VECTOR))
    assert refused(file, env, algorithm="DQN") == "is an agent of TRPO or PPO or A2C, not of DQN"
    assert "algorithm=Rainbow is not one of" in refused(file, env, algorithm="Rainbow")
    change(file, without("n_epochs", "gae_lambda"))
    assert "set algorithm to one of" in refused(file, env)
    assert_plays_alike(model, load_agent(file, env, algorithm="PPO"), batch_of(VECTOR))


# Agents of old releases


def as_of_old_gym(settings: dict[str, Any]) -> None:
    """The settings as SB3 wrote them when spaces were of gym, not of gymnasium."""
    missing = base64.b64encode(b"cgym.spaces.box\nBox\n.").decode()
    for name in ("observation_space", "action_space"):
        space = settings[name]
        space[":type:"] = space[":type:"].replace("gymnasium", "gym")
        space[":serialized:"] = missing
        space["shape"] = space.pop("_shape")
    for name in ("rollout_buffer_class", "replay_buffer_class", "_stats_window_size"):
        settings.pop(name, None)


def share_first_layer(model: BaseAlgorithm) -> None:
    extractor: Any = model.policy.mlp_extractor
    extractor.value_net[0].load_state_dict(extractor.policy_net[0].state_dict())


def shared_layout(weights: dict[str, Any]) -> dict[str, Any]:
    """Actor and critic with a first layer in common, as before SB3 1.8."""
    shared: dict[str, Any] = {}
    for name, weight in weights.items():
        place = re.fullmatch(r"mlp_extractor\.(\w+)_net\.(\d+)\.(\w+)", name)
        if not place:
            shared[name] = weight
        elif place[2] == "0":
            shared[f"mlp_extractor.shared_net.0.{place[3]}"] = weight
        else:
            shared[f"mlp_extractor.{place[1]}_net.{int(place[2]) - 2}.{place[3]}"] = weight
    return shared


def test_agents_of_old_gym_load(file: Path) -> None:
    env = Toy(VECTOR, THREE)
    model = ppo(activation_fn=nn.ReLU)
    model.save(file)
    change(file, as_of_old_gym, legacy=True)
    entries = entries_of(file)
    old = {name: entries[name] for name in ("data", "policy.pth", "policy.optimizer.pth")}
    write_zip(file, {**old, "tensors.pth": entries["pytorch_variables.pth"]})
    with pytest.raises(ModuleNotFoundError, match="gym"):
        PPO.load(file)
    assert_plays_alike(model, load_agent(file, env), batch_of(VECTOR))
    assert_plays_alike(model, load_agent(file, env, trust=True), batch_of(VECTOR))


@pytest.mark.parametrize("net_arch", [[8, {"pi": [6], "vf": [5]}], [8]])
def test_layers_that_actor_and_critic_shared(net_arch: list[Any], file: Path) -> None:
    heads = net_arch[1] if len(net_arch) > 1 else {"pi": [], "vf": []}
    env = Toy(VECTOR, JOINTS)
    model = trained(
        PPO, env, "MlpPolicy", {"net_arch": {name: [8, *layers] for name, layers in heads.items()}}, {}
    )
    share_first_layer(model)
    model.save(file)
    change(file, lambda settings: settings["policy_kwargs"].update(net_arch=net_arch), shared_layout)
    observations = batch_of(VECTOR)
    loaded: Any = load_agent(file, env)
    assert_plays_alike(model, loaded, observations)
    policy: Any = model.policy
    values = [p.predict_values(torch.as_tensor(observations)) for p in (policy, loaded.policy)]
    assert torch.equal(*values)


def test_net_arch_as_a_list_of_heads(file: Path) -> None:
    model = ppo(net_arch={"pi": [8], "vf": [6]})
    model.save(file)
    change(file, lambda settings: settings["policy_kwargs"].update(net_arch=[{"pi": [8], "vf": [6]}]))
    assert_plays_alike(model, load_agent(file, Toy(VECTOR, THREE)), batch_of(VECTOR))


def test_extractors_that_went_by_one_name(file: Path) -> None:
    env = Toy(IMAGE, THREE)
    model = trained(PPO, env, "CnnPolicy", {}, {})
    model.save(file)
    change(
        file,
        weights=lambda weights: {name: w for name, w in weights.items() if name[:3] not in ("pi_", "vf_")},
    )
    assert_plays_alike(model, load_agent(file, env), batch_of(IMAGE))


def test_extractors_and_critics_of_the_first_releases(file: Path) -> None:
    env = Toy(IMAGE, JOINTS)
    model = trained(SAC, env, "CnnPolicy", {"net_arch": [6], "share_features_extractor": True}, {})
    model.save(file)

    def first(weights: dict[str, Any]) -> dict[str, Any]:
        own = {name.removeprefix("actor."): w for name, w in weights.items() if "actor.features" in name}
        old = {name.replace("qf0.", "q1_net.").replace("qf1.", "q2_net."): w for name, w in weights.items()}
        return {**own, **old}

    change(file, weights=first)
    assert_plays_alike(model, load_agent(file, env), batch_of(IMAGE))


def test_compiled_policies(file: Path) -> None:
    model = ppo()
    model.save(file)
    change(file, weights=lambda weights: {f"_orig_mod.{name}": weight for name, weight in weights.items()})
    assert_plays_alike(model, load_agent(file, Toy(VECTOR, THREE)), batch_of(VECTOR))


def test_keys_are_read_in_the_order_of_training(file: Path) -> None:
    wide, narrow = spaces.Box(-5, 5, (2,)), spaces.Box(-1, 1, (2,))
    model = ppo(observations=spaces.Dict([("b", narrow), ("a", wide)]))
    model.save(file)
    today = spaces.Dict(a=wide, b=narrow)
    assert list(today.spaces) == ["a", "b"]
    assert_plays_alike(model, load_agent(file, Toy(today, THREE)), batch_of(today))
    listed = "OrderedDict([('b', Box(2,)), ('a', Box(2,))])"
    change(file, lambda settings: settings["observation_space"].update(spaces=listed))
    assert_plays_alike(model, load_agent(file, Toy(today, THREE)), batch_of(today))
    assert "'b'" in refused(file, Toy(spaces.Dict(c=wide, b=narrow), THREE))


# Files and environments that do not do


@pytest.mark.parametrize(
    ("env", "told"),
    [
        (
            Toy(spaces.Box(-1, 1, (4,)), THREE),
            "is an agent for observations of Box of shape (3,), but the environment has ",
        ),
        (
            Toy(spaces.Discrete(3), THREE),
            "is an agent for observations of Box of shape (3,), but the environment has ",
        ),
        (
            Toy(spaces.Dict(a=VECTOR), THREE),
            "is an agent for observations of Box of shape (3,), but the environment has ",
        ),
        (
            Toy(VECTOR, spaces.Discrete(4)),
            "is an agent for actions of Discrete, n=3, but the environment has Discrete, n=4",
        ),
        (Toy(VECTOR, spaces.MultiBinary(3)), "is an agent for actions of Discrete, n=3"),
        (Toy(VECTOR, JOINTS), "is an agent for actions of Discrete, n=3"),
    ],
)
def test_a_wrong_environment(env: Toy, told: str, file: Path) -> None:
    file.write_bytes(saved_ppo())
    assert refused(file, env).startswith(told)
    assert refused(file, env, trust=True).startswith(told)


@pytest.mark.parametrize(
    "env", [Toy(spaces.Discrete(4), THREE), Toy(VECTOR, spaces.Discrete(4)), Toy(VECTOR, JOINTS)]
)
def test_a_wrong_environment_shows_in_the_weights_too(env: Toy, file: Path) -> None:
    file.write_bytes(saved_ppo())
    change(file, without("observation_space", "action_space"))
    assert refused(file, env).startswith("does not fit observations")


def test_other_bounds_of_actions(file: Path) -> None:
    ppo(JOINTS).save(file)
    load_agent(file, Toy(spaces.Box(-9, 9, (3,)), JOINTS))
    wider = Toy(VECTOR, spaces.Box(-1, 3, (2,)))
    theirs, ours = "low=[-1. -1.], high=[2. 2.]", "low=[-1. -1.], high=[3. 3.]"
    assert f"{theirs}, but the environment has Box of shape (2,), {ours}" in refused(file, wider)


class OwnExtractor(FlattenExtractor):
    """An extractor that is not SB3's."""


class OwnPolicy(ActorCriticPolicy):
    """A policy that is not SB3's."""


@pytest.mark.parametrize(
    ("policy", "policy_kwargs", "told"),
    [
        (
            "MlpPolicy",
            {"features_extractor_class": OwnExtractor},
            "has features_extractor_class=<class 'tests",
        ),
        ("MlpPolicy", {"activation_fn": lambda: nn.ELU(0.5)}, "has activation_fn=<function <lambda>"),
        (OwnPolicy, {}, "its policy class (tests.sb3_ext.test_loading."),
    ],
)
def test_code_of_the_file_needs_trust(
    policy: Any, policy_kwargs: dict[str, Any], told: str, file: Path
) -> None:
    env = Toy(VECTOR, THREE)
    model = trained(PPO, env, policy, policy_kwargs, {})
    model.save(file)
    message = refused(file, env)
    assert message.startswith(told)
    assert message.endswith("if you trust the file, set trust=true, which runs its code")
    assert_plays_alike(model, load_agent(file, env, trust=True), batch_of(VECTOR))


def test_trust_is_true_or_false(file: Path) -> None:
    file.write_bytes(saved_ppo())
    assert "trust must be true or false" in refused(file, Toy(VECTOR, THREE), trust="false")


def test_settings_that_are_not_plain(file: Path) -> None:
    env = Toy(VECTOR, THREE)
    for name, value, told in (
        ("gamma", {":type:": "<class 'numpy.float32'>", ":serialized:": ""}, "stores gamma as a pickle"),
        ("gamma", 1.5, "has gamma=1.5"),
        ("policy_kwargs", [], "has policy_kwargs=[]"),
        ("policy_kwargs", {"activation_fn": "x" * 9999}, "has activation_fn=x"),
        ("policy_kwargs", {"net_arch": [9]}, "is inconsistent: net_arch is [9] in its settings"),
        ("policy_kwargs", {"activation_fn": "<class 'os.system'>"}, "has activation_fn="),
        ("policy_kwargs", {"features_extractor_kwargs": {"width": 3}}, "has width=3"),
        ("policy_kwargs", {"squash_output": True}, "does not fit observations"),
        ("policy_class", None, "its policy class (unknown)"),
    ):
        file.write_bytes(saved_ppo())
        change(file, lambda settings, name=name, value=value: settings.update({name: value}))  # type: ignore[misc]
        assert refused(file, env).startswith(told)


def test_files_that_are_no_agents(file: Path) -> None:
    env = Toy(VECTOR, THREE)
    assert refused(file, env) == "there is no such file"
    assert refused(file.parent, env) == "is a folder, not a file"
    for content in (b"", b"no zip", b"PK\x03\x04" + bytes(100)):
        file.write_bytes(content)
        assert refused(file, env).startswith("is not a zip file, or it is corrupted")
    file.write_bytes(saved_ppo())
    whole, entries = file.read_bytes(), entries_of(file)
    for length in np.linspace(0, len(whole) - 1, 20, dtype=int):
        file.write_bytes(whole[:length])
        assert re.match("is not a zip file, or it is corrupted|is not a saved SB3 agent", refused(file, env))
    for name in ("data", "policy.pth"):
        write_zip(file, {other: content for other, content in entries.items() if other != name})
        assert refused(file, env).endswith(f"it lacks ['{name}']")
    for data in (b"{", b"\xff", b"[" * 100_000):
        write_zip(file, {**entries, "data": data})
        assert refused(file, env).startswith("its entry 'data' is not valid JSON")
    write_zip(file, {**entries, "data": b"[]"})
    assert refused(file, env) == "its entry 'data' is a list, expected an object with settings"
    for weights in (b"", b"PK\x05\x06" + bytes(18), entries["policy.pth"][:-100], b"junk"):
        write_zip(file, {**entries, "policy.pth": weights})
        assert re.match(".*policy.pth' is (corrupted|not a pickle, or it is corrupted)", refused(file, env))


def test_weights_that_are_none(file: Path) -> None:
    env = Toy(VECTOR, THREE)
    name = "action_net.weight"
    huge = torch.zeros(1).expand(10**6, 10**6)
    for changed, told in (
        ([1.0], "its entry 'policy.pth' is not a dict of weights"),
        ({name: 1.0}, "its entry 'policy.pth' has a float as action_net.weight, which is not a tensor"),
        ({name: [torch.zeros(1)]}, "its entry 'policy.pth' has a list as action_net.weight, which"),
        (
            {name: torch.zeros(1).to(torch.float8_e4m3fn)},
            "its entry 'policy.pth' has torch._utils._rebuild_tensor_v3",
        ),
        ({name: torch.full((3, 8), torch.nan)}, f"its weights {name} are not finite"),
        ({name: torch.full((3, 8), -1e30)}, f"its weights {name} reach 1e+30"),
        ({name: huge}, "its entry 'policy.pth' declares"),
        ({"mlp_extractor.policy_net.0.weight": torch.zeros(10**6, 1)}, "is inconsistent"),
        (
            {"mlp_extractor.policy_net.2.weight": torch.zeros(10**5, 1)},
            "has layers in mlp_extractor.policy_net",
        ),
        ({"strange": torch.zeros(1)}, "does not fit observations"),
    ):
        file.write_bytes(saved_ppo())
        change(file, weights=lambda w, new=changed: {**w, **new} if isinstance(new, dict) else new)  # type: ignore[misc]
        assert refused(file, env).startswith(told)


def test_files_that_would_fill_the_memory(file: Path) -> None:
    file.write_bytes(saved_ppo())
    entries, env = entries_of(file), Toy(VECTOR, THREE)
    for name in ("data", "policy.pth"):
        write_zip(file, {**entries, name: bytes(30_000_000)}, zipfile.ZIP_DEFLATED)
        assert refused(file, env).startswith(
            f"its entry '{name}' is too large, 30000000 bytes unpacked (limit"
        )
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", bytes(30_000_000))
    write_zip(file, {**entries, "policy.pth": inner.getvalue()})
    assert refused(file, env) == "its entry 'policy.pth' declares 30000000 bytes, more than it has"


@pytest.mark.parametrize("legacy", [False, True])
def test_hostile_weights(legacy: bool, file: Path) -> None:
    file.write_bytes(saved_ppo())
    trace = file.with_name("trace")
    change(file, weights=lambda weights: {**weights, "bomb": Bomb(trace)}, legacy=legacy)
    assert re.match(
        r"its entry 'policy.pth' refers to \w+\.mkdir, which is not allowed here",
        refused(file, Toy(VECTOR, THREE)),
    )
    assert not trace.exists()


def test_damaged_files_load_or_are_refused(file: Path) -> None:
    env = Toy(VECTOR, JOINTS)
    ppo(JOINTS, activation_fn=nn.ReLU).save(file)
    entries, rng = entries_of(file), np.random.default_rng(0)
    loaded = 0
    for name in ("data", "policy.pth") * 100:
        damaged = bytearray(entries[name])
        for place in rng.integers(len(damaged), size=3):
            damaged[place] = rng.integers(256)
        write_zip(file, {**entries, name: bytes(damaged)})
        with contextlib.suppress(ValueError):
            load_agent(file, env)
            loaded += 1
    assert 0 < loaded < 200


# Statistics of observations


def normalised(space: spaces.Space[Any], **options: Any) -> VecNormalize:
    """A VecNormalize that has seen a few episodes, and no longer learns."""
    normalize = VecNormalize(DummyVecEnv([lambda: Toy(space, THREE)]), **options)
    normalize.reset()
    for _ in range(30):
        normalize.step(np.zeros(1, dtype=int))
    normalize.training = False
    return normalize


@pytest.mark.parametrize("protocol", [3, 4, 5])
@pytest.mark.parametrize(
    ("space", "options"),
    [
        (VECTOR, {}),
        (spaces.Box(-9, 9, (2, 3)), {"clip_obs": 0.5, "epsilon": 0.1}),
        (spaces.Box(-9, 9, ()), {}),
        (MIXED, {"norm_obs_keys": ["vector", "image"], "clip_obs": np.float64(0.3)}),
        (spaces.Dict(a=VECTOR, b=VECTOR), {}),
        (VECTOR, {"norm_obs": False}),
        (MIXED, {"norm_obs": False}),
    ],
)
def test_normalises_as_it_was_saved(
    space: spaces.Space[Any], options: dict[str, Any], protocol: int, tmp_path: Path
) -> None:
    normalize, file = normalised(space, **options), tmp_path / "statistics.pkl"
    file.write_bytes(pickle.dumps(normalize, protocol))
    observations = batch_of(space)
    expected = normalize.normalize_obs(observations)
    for trust in (False, True):
        found = load_normalization(file, space, trust=trust)(observations)
        if isinstance(expected, dict):
            assert found.keys() == expected.keys()
        pairs = (
            [(found[k], expected[k]) for k in expected] if isinstance(expected, dict) else [(found, expected)]
        )
        for ours, theirs in pairs:
            np.testing.assert_array_equal(ours, theirs)
            assert ours.dtype == theirs.dtype


def test_an_agent_that_saw_normalised_images(tmp_path: Path) -> None:
    file, statistics = tmp_path / "agent.zip", tmp_path / "statistics.pkl"
    normalize = normalised(IMAGE)
    normalize.save(str(statistics))
    model = trained(PPO, normalize, "MlpPolicy", {"net_arch": [8]}, {})
    model.save(file)
    seen = load_normalization(statistics, IMAGE)(batch_of(IMAGE))
    assert_plays_alike(model, load_agent(file, Toy(IMAGE, THREE)), seen)


def test_statistics_of_another_environment(tmp_path: Path) -> None:
    file = tmp_path / "statistics.pkl"
    normalised(VECTOR).save(str(file))
    with pytest.raises(
        ValueError, match=r"of observations have shape \(3,\), but .* observations have shape \(4,\)"
    ):
        load_normalization(file, spaces.Box(-1, 1, (4,)))
    with pytest.raises(ValueError, match="the statistics are of arrays"):
        load_normalization(file, spaces.Dict(a=VECTOR))
    normalised(spaces.Dict(a=VECTOR, b=VECTOR)).save(str(file))
    with pytest.raises(ValueError, match=r"the keys of the statistics, .*, do not match the observations'"):
        load_normalization(file, spaces.Dict(a=VECTOR))
    with pytest.raises(ValueError, match="no mean and variance of observations"):
        load_normalization(file, VECTOR)


class OwnNormalize(VecNormalize):
    """A VecNormalize that is not SB3's, but normalises as it does."""


def test_own_statistics_need_trust(tmp_path: Path) -> None:
    file = tmp_path / "statistics.pkl"
    OwnNormalize(DummyVecEnv([lambda: Toy(VECTOR, THREE)])).save(str(file))
    with pytest.raises(ValueError, match=r"contains a .*OwnNormalize, .* set trust=true, which runs its"):
        load_normalization(file, VECTOR)
    assert load_normalization(file, VECTOR, trust=True)(np.zeros((2, 3))).shape == (2, 3)


class Hidden:
    """Says that it is of another library, and brings a bomb along."""

    def __init__(self, *cargo: Any) -> None:
        self.cargo = cargo

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return type(self), self.cargo


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_hostile_statistics(protocol: int, tmp_path: Path) -> None:
    file, trace = tmp_path / "statistics.pkl", tmp_path / "trace"
    normalize = normalised(VECTOR)
    normalize.epsilon = Bomb(trace)  # type: ignore[assignment]
    for hostile in (Bomb(trace), [Hidden(Bomb(trace))], normalize):
        file.write_bytes(pickle.dumps(hostile, protocol))
        with pytest.raises(ValueError, match=r"refers to \w+\.\w+, which is not allowed here") as caught:
            load_normalization(file, VECTOR)
        assert str(caught.value).startswith(str(file))
        assert not trace.exists()
    pickle.loads(pickle.dumps(Bomb(trace), protocol))
    assert trace.exists()


def test_statistics_too_deep_to_be_written_are_refused_by_their_type(tmp_path: Path) -> None:
    shared: list[Any] = []
    for _ in range(60):  # 2**60 leaves, if anybody wrote them out
        shared = [shared, shared]
    normalize, file = normalised(VECTOR), tmp_path / "statistics.pkl"
    normalize.norm_obs = shared  # type: ignore[assignment]
    file.write_bytes(pickle.dumps(normalize))
    with pytest.raises(ValueError, match=r"statistics.pkl.* norm_obs must be true or false, .* list"):
        load_normalization(file, VECTOR)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"cbuiltins\neval\n(S'1'\ntR.", "builtins.eval"),
        (b"c__builtin__\neval\n(S'1'\ntR.", "__builtin__.eval"),
        (b"cos\nsystem\n(S'exit'\ntR.", "os.system"),
        (b"(S'exit'\nios\nsystem\n.", "opcode INST"),
        (b"cnumpy\nload\n(S'x'\ntR.", "numpy.load"),
        (b"cnumpy.testing._private.utils\nrunstring\n(S'1'\n}tR.", "numpy.testing._private.utils.runstring"),
        (b"ctorch\nload\n(S'x'\ntR.", "torch.load"),
    ],
)
def test_what_a_pickle_names_is_never_called(content: bytes, named: str, tmp_path: Path) -> None:
    file = tmp_path / "statistics.pkl"
    file.write_bytes(content)
    with pytest.raises(ValueError, match=f"{re.escape(named)}|not the statistics"):
        load_normalization(file, VECTOR)


def test_damaged_statistics_load_or_are_refused(tmp_path: Path) -> None:
    file, rng = tmp_path / "statistics.pkl", np.random.default_rng(0)
    normalised(VECTOR).save(str(file))
    whole = file.read_bytes()
    for length in np.linspace(0, len(whole) - 1, 20, dtype=int):
        file.write_bytes(whole[:length])
        with pytest.raises(ValueError, match="is not a pickle, or it is corrupted"):
            load_normalization(file, VECTOR)
    file.write_bytes(b"\x80\x04Nr\xff\xff\xff\x7f.")
    with pytest.raises(ValueError, match="not the statistics"):  # a memo of 2**31 objects takes no memory
        load_normalization(file, VECTOR)
    with pytest.raises(ValueError, match="there is no such file"):
        load_normalization(tmp_path / "nothing.pkl", VECTOR)
    loaded = 0
    for _ in range(300):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] = rng.integers(256)
        file.write_bytes(damaged)
        with contextlib.suppress(ValueError):
            assert load_normalization(file, VECTOR)(np.zeros((2, 3))).shape == (2, 3)
            loaded += 1
    assert 0 < loaded < 300


# Agents that others trained, where they are at hand

RETURNS = {
    "a2c-Acrobot-v1": (-100, -60),
    "dqn-CartPole-v1": (400, 500),
    "dqn-LunarLander-v2": (50, 300),
    "dqn-MountainCar-v0": (-120, -85),
    "ppo-CartPole-v1": (500, 500),
    "ppo-LunarLander-v2": (150, 300),
    "sac-Pendulum-v1": (-250, 0),
}


def episodes(
    model: BaseAlgorithm, env: gym.Env[Any, Any], seen: Callable[[Any], Any], count: int = 2
) -> tuple[float, Array, Array]:
    """The mean return, what the agent saw [step, ...] and what it did [step, ...]."""
    total, observations, actions = 0.0, [], []
    for seed in range(count):
        observation, _ = env.reset(seed=seed)
        over = False
        while not over:
            observations.append(seen(observation))
            actions.append(model.predict(observations[-1], deterministic=True)[0])
            observation, reward, terminated, truncated, _ = env.step(actions[-1])
            total += float(reward)
            over = terminated or truncated
    return total / count, np.stack(observations), np.stack(actions)


@pytest.mark.parametrize("name", [name for name in RETURNS if (AGENTS / f"{name}.zip").exists()])
def test_agents_of_others_play_as_well_as_ever(name: str) -> None:
    file = AGENTS / f"{name}.zip"
    env = gym.make(name.partition("-")[2].replace("LunarLander-v2", "LunarLander-v3"))
    statistics = AGENTS / f"{name}.vecnormalize.pkl"
    seen = load_normalization(statistics, env.observation_space) if statistics.exists() else np.asarray
    model = load_agent(file, env)
    assert type(model).__name__.lower() == name.partition("-")[0]
    found, observations, actions = episodes(model, env, seen)
    low, high = RETURNS[name]
    assert low <= found <= high
    plain, _ = load_agent(file, env, trust=True).predict(observations, deterministic=True)
    np.testing.assert_allclose(actions, plain, atol=1e-5)


def test_an_agent_of_our_own_plays_as_well_as_ever_from_an_old_file(file: Path) -> None:
    env = gym.make("CartPole-v1", max_episode_steps=100)
    model = PPO("MlpPolicy", env, n_steps=256, n_epochs=5, learning_rate=3e-3, seed=0, device="cpu").learn(
        1024
    )
    model.save(file)
    change(file, as_of_old_gym, legacy=True)
    found, observations, actions = episodes(load_agent(file, env), env, np.asarray)
    assert found > 40
    np.testing.assert_array_equal(actions, model.predict(observations, deterministic=True)[0])
