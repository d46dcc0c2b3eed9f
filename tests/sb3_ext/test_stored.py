"""Agents stored with their explainers: they answer bit for bit as the agents that were stored."""

import copy
import io
import json
import pickle
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from sb3_contrib import ARS, QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.torch_layers import FlattenExtractor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize
from torch import nn

from sb3_ext import as_policy, load_agent
from sb3_ext.normalization import ObservationNormalization, frozen, load_normalization
from sb3_ext.policies import SB3Policy
from sb3_ext.stored import describe, make
from tests.support.good_files import small_network
from tests.support.hostile_files import with_entries, with_keys
from tpd.core.observations import batch
from tpd.core.types import Array, DiscretePolicy, Policy, RecurrentPolicy
from tpd.envs import Environment
from tpd.envs.events.default import default_outcomes
from tpd.guards.files import StoredArrays
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.explainer import Explainer
from tpd.store import explainers

AGENTS = Path(__file__).parents[3] / "shared" / "agents"
SMALL = {"policy_kwargs": {"net_arch": [6, 5]}}
POLE, PENDULUM, TAXI = "CartPole-v1", "Pendulum-v1", "FuelTaxi-v0"
LSTM = {"net_arch": [6], "lstm_hidden_size": 3, "n_lstm_layers": 2}
CASES: dict[str, tuple[type[BaseAlgorithm], str, str, dict[str, Any]]] = {
    "PPO": (PPO, POLE, "MlpPolicy", SMALL),
    "PPO, settings": (
        PPO,
        PENDULUM,
        "MlpPolicy",
        {"policy_kwargs": {"net_arch": {"pi": [5], "vf": []}, "activation_fn": nn.ELU, "ortho_init": False}},
    ),
    "PPO, gSDE": (PPO, PENDULUM, "MlpPolicy", {**SMALL, "use_sde": True}),
    "A2C": (A2C, POLE, "MlpPolicy", SMALL),
    "TRPO": (TRPO, POLE, "MlpPolicy", SMALL),
    "DQN": (DQN, POLE, "MlpPolicy", SMALL),
    "QRDQN": (QRDQN, POLE, "MlpPolicy", {"policy_kwargs": {"net_arch": [6], "n_quantiles": 7}}),
    "SAC": (SAC, PENDULUM, "MlpPolicy", SMALL),
    "TD3": (TD3, PENDULUM, "MlpPolicy", SMALL),
    "DDPG": (DDPG, PENDULUM, "MlpPolicy", SMALL),
    "TQC": (TQC, PENDULUM, "MlpPolicy", {"policy_kwargs": {"net_arch": [6], "n_quantiles": 4}}),
    "ARS": (ARS, POLE, "LinearPolicy", {}),
    "RecurrentPPO": (RecurrentPPO, POLE, "MlpLstmPolicy", {"policy_kwargs": LSTM}),
    "RecurrentPPO, one LSTM": (
        RecurrentPPO,
        PENDULUM,
        "MlpLstmPolicy",
        {"policy_kwargs": {**LSTM, "shared_lstm": True, "enable_critic_lstm": False}},
    ),
    "MaskablePPO": (MaskablePPO, TAXI, "MlpPolicy", SMALL),
}


def made(case: str, deterministic: bool = True) -> tuple[SB3Policy, Environment]:
    algorithm, env_id, policy, settings = CASES[case]
    env = Environment(env_id)
    own = copy.deepcopy(settings)  # SB3 adds to the policy_kwargs that it is given
    model = algorithm(policy, env_id, seed=3, device="cpu", **own)
    mask = env.mask if env.discrete else None
    return as_policy(model, deterministic=deterministic, mask=mask), env


def stored(policy: Policy, env: Environment, folder: Path, **options: Any) -> Policy:
    """The policy as it is read from the folder to which it was saved with a network."""
    save(policy, env, folder)
    return explainers.load(folder, env=env, **options).policy


def save(policy: Policy, env: Environment, folder: Path) -> None:
    learner = small_network(env, policy)
    explainers.save(Explainer(learner, policy, default_outcomes(env).legend), env, folder)


def seen(policy: Policy, env: Environment, count: int = 40) -> Array:
    """Observations, with hidden states where the policy has them."""
    env.observation_space.seed(0)
    observations = np.array([env.observation_space.sample() for _ in range(count)])
    if not isinstance(policy, RecurrentPolicy):
        return observations
    hidden = np.random.default_rng(0).normal(size=policy.start(count).shape).astype(np.float32)
    return np.concatenate([observations, hidden], axis=1)


def assert_same_answers(one: Policy, other: Policy, observations: Array) -> None:
    assert one.discount == other.discount
    rngs = np.random.default_rng(1), np.random.default_rng(1)
    np.testing.assert_array_equal(one.action(observations), other.action(observations))
    for _ in range(2):
        drawn = [policy.sample(observations, rng) for policy, rng in zip((one, other), rngs, strict=True)]
        np.testing.assert_array_equal(drawn[0], drawn[1])
    np.testing.assert_array_equal(one.action_values(observations), other.action_values(observations))
    assert isinstance(one, DiscretePolicy) == isinstance(other, DiscretePolicy)
    if isinstance(one, DiscretePolicy) and isinstance(other, DiscretePolicy):
        np.testing.assert_array_equal(one.probabilities(observations), other.probabilities(observations))
    assert isinstance(one, RecurrentPolicy) == isinstance(other, RecurrentPolicy)
    if isinstance(one, RecurrentPolicy) and isinstance(other, RecurrentPolicy):
        np.testing.assert_array_equal(one.start(3), other.start(3))
        np.testing.assert_array_equal(one.advance(observations), other.advance(observations))
        assert one.version == other.version


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("case", CASES)
def test_a_stored_agent_answers_as_the_live_one(case: str, deterministic: bool, tmp_path: Path) -> None:
    if case == "PPO, gSDE" and not deterministic:
        pytest.skip("its noise is no function of observations, so it is refused before")
    policy, env = made(case, deterministic)
    again = stored(policy, env, tmp_path)
    assert_same_answers(policy, again, seen(policy, env))
    assert_same_answers(policy, pickle.loads(pickle.dumps(again)), seen(policy, env))  # as workers get it
    assert not [path for path in tmp_path.iterdir() if path.suffix not in (".json", ".npz")]


def test_an_agent_that_was_trained_is_stored_as_it_is_now(tmp_path: Path) -> None:
    env = Environment(POLE)
    model = DQN("MlpPolicy", POLE, seed=0, device="cpu", learning_starts=10, gamma=0.97).learn(60)
    policy = as_policy(model, deterministic=False)
    again = stored(policy, env, tmp_path)
    assert_same_answers(policy, again, seen(policy, env))
    assert again.model.exploration_rate == model.exploration_rate  # type: ignore[attr-defined]


@pytest.mark.parametrize("live", [True, False])
def test_the_statistics_of_vec_normalize_are_stored_too(live: bool, tmp_path: Path) -> None:
    env = Environment(POLE)
    normalize = VecNormalize(DummyVecEnv([lambda: gym.make(POLE)]), clip_obs=0.7)
    model = PPO("MlpPolicy", normalize, n_steps=32, batch_size=32, seed=0, device="cpu").learn(64)
    given = normalize.normalize_obs if live else frozen(normalize)
    policy = as_policy(model, normalization=given, deterministic=False)
    again = stored(policy, env, tmp_path)
    assert isinstance(again.normalization, ObservationNormalization)  # type: ignore[attr-defined]
    assert_same_answers(policy, again, seen(policy, env))
    other = as_policy(model, deterministic=False)
    with pytest.raises(AssertionError):
        assert_same_answers(other, again, seen(policy, env))


@pytest.mark.parametrize("kind", ["image", "dict"])
def test_images_and_dicts_are_seen_as_before(kind: str, tmp_path: Path) -> None:
    image = gym.spaces.Box(0, 255, (36, 36, 3), np.uint8)
    parts = gym.spaces.Dict({"eye": image, "place": gym.spaces.Box(-1, 1, (2,))})

    class World(gym.Env[Any, Any]):
        observation_space = image if kind == "image" else parts
        action_space = gym.spaces.Discrete(3)

    algorithm, policy_name = (DQN, "CnnPolicy") if kind == "image" else (PPO, "MultiInputPolicy")
    model = algorithm(policy_name, World(), seed=0, device="cpu")
    policy = as_policy(model, deterministic=False)
    settings, arrays = describe(policy, Environment(POLE))
    np.savez(tmp_path / "agent.npz", allow_pickle=False, **arrays)
    again = make(settings, StoredArrays(tmp_path / "agent.npz"), policy.discount, None)
    World.observation_space.seed(0)
    observations = batch(World.observation_space, [World.observation_space.sample() for _ in range(3)])
    assert_same_answers(policy, again, observations)


@pytest.mark.parametrize("path", sorted(AGENTS.glob("*.zip")), ids=lambda path: path.stem)
def test_agents_of_other_people_are_stored_as_they_play(path: Path, tmp_path: Path) -> None:
    name = path.stem.partition("-")[2].replace("LunarLander-v2", "LunarLander-v3")
    if name not in gym.registry or name.startswith("Hopper"):
        pytest.skip(f"{name} cannot be made here")
    env = Environment(name)
    statistics, normalization = path.with_name(f"{path.stem}.vecnormalize.pkl"), None
    if statistics.exists():
        normalization = load_normalization(statistics, env.observation_space)
    policy = as_policy(load_agent(path, env.make()), normalization=normalization)
    assert_same_answers(policy, stored(policy, env, tmp_path), seen(policy, env))


class OwnPolicy(ActorCriticPolicy):
    """A policy class of a user."""


class OwnExtractor(FlattenExtractor):
    """A features extractor of a user."""


class OwnPPO(PPO):
    """An algorithm of a user."""


@pytest.mark.parametrize(
    ("algorithm", "policy", "kwargs", "reason"),
    [
        (PPO, OwnPolicy, {}, "its policy .*OwnPolicy is custom code"),
        (PPO, "MlpPolicy", {"features_extractor_class": OwnExtractor}, "OwnExtractor.* is not a plain value"),
        (OwnPPO, "MlpPolicy", {}, "its algorithm .*OwnPPO is custom code"),
    ],
)
def test_what_is_code_is_absent_and_every_answer_says_why(
    algorithm: type[PPO], policy: Any, kwargs: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    env = Environment(POLE)
    model = algorithm(policy, POLE, policy_kwargs=kwargs, seed=0, device="cpu")
    absent = stored(as_policy(model), env, tmp_path)
    assert isinstance(absent, AbsentPolicy)
    with pytest.raises(ValueError, match=reason):
        absent.action(np.zeros((1, 4)))


def test_networks_that_were_exchanged_are_not_taken_for_those_of_the_settings(tmp_path: Path) -> None:
    policy, env = made("PPO")
    networks: Any = policy.model.policy.mlp_extractor
    networks.policy_net[1] = nn.ReLU()
    absent = stored(policy, env, tmp_path)
    assert isinstance(absent, AbsentPolicy)
    assert "its networks do not match the architecture in its settings" in absent.reason


def test_masks_come_from_the_environment_or_the_agent_is_absent(tmp_path: Path) -> None:
    policy, env = made("MaskablePPO")
    save(policy, env, tmp_path)
    absent = explainers.load(tmp_path).policy
    assert isinstance(absent, AbsentPolicy)
    assert "masked by the environment" in absent.reason
    policy.mask = lambda observations: env.mask(observations)
    assert "differ from those of the environment" in stored(policy, env, tmp_path).reason  # type: ignore[attr-defined]


def test_an_explainer_may_be_loaded_without_its_agent(tmp_path: Path) -> None:
    policy, env = made("PPO")
    assert isinstance(stored(policy, env, tmp_path, with_agent=False), AbsentPolicy)


NAN = np.full(6, np.nan, np.float32)
BIAS = "weight.mlp_extractor.policy_net.0.bias.npy"
AGENT = "policy__settings"


def npy(array: Array) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (
            with_keys("explainer.json", **{f"{AGENT}__algorithm": "DQN"}),
            "must be one of|does not fit|cannot be stored",
        ),
        (
            with_keys("explainer.json", **{f"{AGENT}__policy_settings__net_arch": {"pi": [7], "vf": [6, 5]}}),
            "is inconsistent",
        ),
        (with_entries("agent.npz", lambda good: {**good, BIAS: npy(NAN)}), "must not be nan"),
        (with_entries("agent.npz", lambda good: {**good, BIAS: npy(NAN[:3])}), "must not be nan"),
        (with_entries("agent.npz", lambda good: {**good, BIAS: npy(np.zeros(3, "f"))}), "instead of"),
        (with_entries("agent.npz", lambda good: {n: c for n, c in good.items() if n != BIAS}), "it lacks"),
        (with_entries("agent.npz", lambda good: {**good, "weight.more.npy": good[BIAS]}), "unexpected more"),
    ],
)
def test_a_hostile_agent_is_refused_in_one_line(spoil: Any, complaint: str, tmp_path: Path) -> None:
    policy, env = made("PPO")
    save(policy, env, tmp_path)
    spoil(tmp_path)
    with pytest.raises(ValueError, match=complaint) as refusal:
        explainers.load(tmp_path, env=env)
    assert "\n" not in str(refusal.value)
    assert len(str(refusal.value)) < 600
    assert str(tmp_path) in str(refusal.value)


def test_weights_without_numbers_take_no_memory(tmp_path: Path) -> None:
    """A shape of 10^5 x 0 costs nothing to store, and a network of that width would."""
    policy, env = made("PPO")
    save(policy, env, tmp_path)
    name = "weight.mlp_extractor.policy_net.0.weight.npy"
    with_entries("agent.npz", lambda good: {**good, name: npy(np.zeros((10**5, 0), "f"))})(tmp_path)
    with pytest.raises(ValueError, match="are empty"):
        explainers.load(tmp_path, env=env)


def test_the_description_is_plain_json(tmp_path: Path) -> None:
    policy, env = made("PPO")
    save(policy, env, tmp_path)
    about = json.loads((tmp_path / explainers.DESCRIPTION).read_text())["policy"]
    assert about["settings"]["algorithm"] == "PPO"
    assert about["settings"]["policy_settings"]["net_arch"] == {"pi": [6, 5], "vf": [6, 5]}
    assert about["settings"]["policy_settings"]["activation_fn"] == "Tanh"
    assert torch.is_tensor(policy.model.policy.state_dict()["action_net.weight"])
