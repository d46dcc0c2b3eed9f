"""Agents of Stable-Baselines3 from a zip or a training, to explanations that are judged and kept."""

from pathlib import Path

import numpy as np
import pytest
from stable_baselines3 import DQN, PPO, SAC
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_ext import as_policy
from tests.support import Compose
from tpd.core.types import Policy
from tpd.envs import Environment
from tpd.run.experiment import run
from tpd.run.parts import Parts, build
from tpd.run.results import Findings
from tpd.store import explainers
from tpd.store.explanations import load_explanation
from tpd.store.tables import read_errors, read_table
from tpd.tracking.runs import Run

AGENTS = Path(__file__).parents[3] / "shared" / "agents"
EVERY_AGENT = {
    "a2c-Acrobot-v1": "acrobot",
    "dqn-CartPole-v1": "cart_pole",
    "dqn-LunarLander-v2": "lunar_lander",
    "dqn-MountainCar-v0": "mountain_car",
    "ppo-CartPole-v1": "cart_pole",
    "ppo-LunarLander-v2": "lunar_lander",
    "sac-Pendulum-v1": "pendulum",
}
PRESENT = [name for name in EVERY_AGENT if (AGENTS / f"{name}.zip").exists()]
SMALL = [
    "training.steps=3000",
    "explainer.hidden=[32,32]",
    "explainer.horizon=8",
    "explainer.fit_updates=40",
    "evaluation.episodes=2",
    "evaluation.truth.moments=6",
    "evaluation.truth.rollouts=2",
    "evaluation.forecast_episodes=4",
    "evaluation.calibration_episodes=2",
    "recording.episodes=1",
    "recording.steps=15",
]


def explained(parts: Parts, folder: Path, overview: bool = False) -> Findings:
    return run(parts, folder, Run(), progress=False, overview=overview)


@pytest.fixture(scope="module")
def zips(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Agents that were trained for a moment."""
    folder = tmp_path_factory.mktemp("zips")
    PPO("MlpPolicy", "CartPole-v1", n_steps=64, seed=0, device="cpu").learn(256).save(folder / "ppo")
    DQN("MlpPolicy", "Acrobot-v1", seed=0, device="cpu").learn(200).save(folder / "dqn")
    SAC("MlpPolicy", "Pendulum-v1", seed=0, device="cpu").learn(150).save(folder / "sac")
    return folder


@pytest.mark.parametrize(
    ("agent", "overrides"),
    [
        ("ppo", ["experiment=cart_pole"]),
        # actions that are numbered or not, outcomes that are given or found: each is above or below
        pytest.param("sac", ["experiment=pendulum"], marks=pytest.mark.slow),
        pytest.param("dqn", ["experiment=agent", "env=acrobot"], marks=pytest.mark.slow),  # outcomes=default
        ("sac", ["experiment=agent", "env.id=Pendulum-v1"]),
    ],
)
def test_a_zip_becomes_explanations_that_are_judged_and_kept(
    agent: str, overrides: list[str], zips: Path, tmp_path: Path, compose_config: Compose
) -> None:
    parts = build(compose_config(*overrides, f"policy.path={zips / agent}.zip", *SMALL))
    findings = explained(parts, tmp_path, overview=agent == "sac")
    assert findings.errors is not None
    assert findings.forecasts is not None
    errors = read_errors(tmp_path / "errors.json")
    assert {"pi_mse", "foil_mse", "pi_noise", "foil_noise"} <= set(errors.columns)
    assert set(errors.index) < set(read_table(tmp_path / "forecasts.json")["outcome"])
    drawn = {path.name for path in (tmp_path / "plots").iterdir()}
    assert drawn - {"survival.png"} == {"start.png", "later.png", "reliability.png"}
    kept = load_explanation(tmp_path / "later.npz")
    again = explainers.load(tmp_path / "explainer").explain(kept.observations, kept.actions)
    np.testing.assert_array_equal(again.expected, kept.expected)


@pytest.mark.no_cover
def test_explaining_goes_alongside_training_too(tmp_path: Path, compose_config: Compose) -> None:
    parts = build(
        compose_config(
            "experiment=cart_pole",
            "policy=sb3_ppo",
            "policy.steps=600",
            "policy.num_envs=2",
            "+policy.algorithm.n_steps=64",
            "training=alongside",
            "evaluation=none",
            *(setting for setting in SMALL if not setting.startswith(("training", "evaluation"))),
        )
    )
    explained(parts, tmp_path)
    support = parts.explainer.explain(np.zeros((2, 4), dtype=np.float32), np.array([0, 1])).support
    assert support.sum() >= 600  # PPO finishes its rollouts


def test_a_loaded_agent_plays_as_sb3_itself_plays_it(zips: Path, compose_config: Compose) -> None:
    parts = build(compose_config("experiment=cart_pole", f"policy.path={zips / 'ppo.zip'}", *SMALL))
    plain = PPO.load(zips / "ppo", device="cpu")
    assert returns(parts.trainer.policy, parts.env, 3) == returns(as_policy(plain), parts.env, 3)
    means = evaluate_policy(plain, seeded(parts.env), n_eval_episodes=3, return_episode_rewards=True)[0]
    assert returns(parts.trainer.policy, parts.env, 3) == pytest.approx(means)


@pytest.mark.parametrize("name", PRESENT)
def test_agents_of_other_people_play_as_sb3_itself_plays_them(name: str, compose_config: Compose) -> None:
    parts = build(compose_config(*command(name)))
    trusted = build(compose_config(*command(name), "policy.trust=true")).trainer.policy
    ours = returns(parts.trainer.policy, parts.env, 2)
    assert ours == pytest.approx(returns(trusted, parts.env, 2))


@pytest.mark.slow
@pytest.mark.parametrize("name", PRESENT)
def test_agents_of_other_people_are_explained_with_skill(
    name: str, tmp_path: Path, compose_config: Compose
) -> None:
    forecasts = explained(build(compose_config(*command(name))), tmp_path, overview=True).forecasts
    assert forecasts is not None
    own = forecasts.policy
    table = own.frame().query("range == 'all'").set_index("outcome")
    events = [event for event, is_event in zip(own.names, own.is_event, strict=True) if is_event]
    frequent = table.loc[events].query("base_rate >= 0.01")
    assert len(frequent) >= 2
    assert (frequent["skill"].dropna() > 0).all(), frequent


def command(name: str) -> list[str]:
    """What a user types to have the agent explained."""
    overrides = [f"experiment={EVERY_AGENT[name]}", f"policy.path={AGENTS / name}.zip"]
    statistics = AGENTS / f"{name}.vecnormalize.pkl"
    return [*overrides, f"policy.vec_normalize={statistics}"] if statistics.exists() else overrides


def seeded(env: Environment) -> DummyVecEnv:
    envs = DummyVecEnv([lambda: Monitor(env.make())])
    envs.seed(0)
    return envs


def returns(policy: Policy, env: Environment, episodes: int) -> list[float]:
    """The sums of rewards of episodes played one after the other."""
    one = env.make()
    observation, _ = one.reset(seed=0)
    totals = []
    for _ in range(episodes):
        total, over = 0.0, False
        while not over:
            observation, reward, terminated, truncated, _ = one.step(policy.action(observation[None])[0])
            total, over = total + float(reward), terminated or truncated
        totals.append(total)
        observation, _ = one.reset()
    return totals
