"""One good file of every kind that is read, to be spoilt."""

import contextlib
import json
import sqlite3
from collections import OrderedDict, deque
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import yaml
from gymnasium import spaces
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_ext import as_policy
from tpd.core.seeding import generator
from tpd.core.types import Resumable
from tpd.envs import Environment
from tpd.envs.dataset import DatasetDescription
from tpd.envs.events.default import default_outcomes
from tpd.evaluation.errors import Errors
from tpd.policies.function import FunctionPolicy
from tpd.policies.stored import save_policy
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.network.learner import NetworkFHTD
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.run.parts import CHECKPOINT
from tpd.run.sweep import BEST
from tpd.sources.collection import collect
from tpd.sources.episodes import Recorder
from tpd.sources.exploration import Exploration
from tpd.sources.parquet import shard_path, write_shard
from tpd.store import explainers, run_descriptions, saved_runs
from tpd.store.checkpoints import Checkpoint
from tpd.store.explanations import save_explanation
from tpd.store.recordings import save_recording
from tpd.store.run_descriptions import FigureDescription, RunDescription
from tpd.store.run_folders import FINISHED, STATUS, SWEEP, write_record
from tpd.store.tables import write_table
from tpd.store.yaml_files import OVERRIDES
from tpd.tracking.mlflow_runs import MlflowTracking
from tpd.tracking.outbox import open_run

LAKE, POLE = "FrozenLake-v1", "CartPole-v1"
MARKER = "ran"
"""The folder that appears when a hostile file has run."""
MODULE = f"import os\nos.mkdir({MARKER!r})\n"
STRANGER = "stranger.py"


@cache
def lake() -> Environment:
    return Environment(LAKE)


@cache
def explained() -> Explainer:
    """Of a frozen lake, of which a little was seen."""
    env, outcomes = lake(), default_outcomes(lake())
    policy = TabularPolicy(np.full(env.table_shape(), 0.25), 0.9)
    learner = ReplayedFHTD(env, policy, outcomes, horizon=5)
    seen = collect(env, policy, generator(0, "a"), steps=500, exploration=Exploration(0.0), num_envs=5)
    for batch in seen:
        learner.update(batch)
    return Explainer(learner, policy, outcomes.legend)


def small_network(env: Environment, policy: Any, return_atoms: int = 0) -> NetworkFHTD:
    """A learner that has learned nothing yet."""
    return NetworkFHTD(
        env,
        policy,
        default_outcomes(env),
        horizon=3,
        form="efo",
        discount=0.9,
        hidden=[4],
        learning_rate=1e-3,
        batch_size=4,
        target_update_rate=0.1,
        updates_per_step=0.1,
        fit_updates=0,
        replay_size=100,
        seed=0,
        return_atoms=return_atoms,
    )


def going_left(env: Environment) -> FunctionPolicy:
    """A policy that always takes the action 0."""
    return FunctionPolicy(lambda seen: np.zeros(len(seen), dtype=np.int64), 0.9, env.action_space)


def table(folder: Path) -> None:
    """An explainer that is a table."""
    explainers.save(explained(), lake(), folder / saved_runs.EXPLAINER)


def network(folder: Path, return_atoms: int = 0) -> None:
    """An explainer that is a network."""
    env = Environment(POLE)
    policy = going_left(env)
    explainer = Explainer(small_network(env, policy, return_atoms), policy, default_outcomes(env).legend)
    explainers.save(explainer, env, folder / saved_runs.EXPLAINER)


def stored_agent(folder: Path) -> None:
    """An explainer that is a network, and the agent that it explains."""
    env = Environment(POLE)
    model = PPO("MlpPolicy", POLE, n_steps=8, batch_size=8, policy_kwargs={"net_arch": [4]}, device="cpu")
    policy = as_policy(model)
    explainer = Explainer(small_network(env, policy), policy, default_outcomes(env).legend)
    explainers.save(explainer, env, folder / saved_runs.EXPLAINER)


def returns(folder: Path) -> None:
    """A network that knows the distribution of the return too."""
    network(folder, return_atoms=11)


def explanation(folder: Path) -> None:
    """What is expected in a few states."""
    save_explanation(explained().explain(np.arange(4)), folder / "explanation.npz")


def recording(folder: Path) -> None:
    """Two short episodes, with pictures."""
    env = Environment(POLE, max_episode_steps=3)
    episodes = Recorder(episodes=2, steps=3).record(env, going_left(env), default_outcomes(env))
    assert episodes is not None
    save_recording(episodes, folder / saved_runs.EPISODES)


def shards(folder: Path) -> None:
    """A dataset, of one shard."""
    env = lake()
    names = tuple(map(env.name_of_action, range(env.num_actions)))
    DatasetDescription(env.id, env.observation_space, env.action_space, names, (), 1, {}).write(folder)
    policy, rng = explained().policy, generator(0, "a")
    seen = collect(env, policy, rng, steps=50, exploration=Exploration(0.0), num_envs=5)
    deque(write_shard(shard_path(folder, 0), seen), maxlen=0)  # each batch is written as it passes


def run(folder: Path) -> None:
    """The folder of a run, and beside it a module of strangers."""
    table(folder)
    about = RunDescription(
        name="lake",
        seed=0,
        kind="lakes",
        env=run_descriptions.describe_env(lake()),
        outcomes=run_descriptions.describe_outcomes(default_outcomes(lake())),
        actions=run_descriptions.describe_actions(lake()),
        figures=[FigureDescription(name="start", title="Start", states=["start", "start"])],
    )
    run_descriptions.write(about, folder / saved_runs.EXPLAINER)
    (folder / saved_runs.CONFIG).write_text(yaml.safe_dump({"name": "lake"}))
    (folder / STRANGER).write_text(MODULE)


def job(folder: Path) -> None:
    """The folder of a finished job of a sweep, as the summary reads it."""
    run(folder)
    (folder / OVERRIDES).parent.mkdir()
    (folder / OVERRIDES).write_text(yaml.safe_dump(["env=frozen_lake", "seed=0"]))
    names, half = explained().legend.names, np.full(len(explained().legend.names), 0.5)
    errors = Errors(names, half, half, half, half, pi_known=1.0, foil_known=1.0, disagreement=0.0)
    write_table(errors.frame(), folder / "errors.json")
    write_table(errors.frame().assign(step=100), folder / "curve.json")
    (folder / "metrics.json").write_text(json.dumps(errors.metrics()))
    happened = {"outcome": names, "range": "all", "base_rate": half, "skill": half, "actions": "policy"}
    write_table(pd.DataFrame(happened).assign(verdict="learned"), folder / "forecasts.json")
    save_explanation(explained().explain(np.array([0, 0]), np.array([0, 1])), folder / "start.npz")
    (folder / "plots").mkdir()
    (folder / "plots" / "start.png").touch()
    write_record(folder / STATUS, number=0, seed=0, status=FINISHED)


def sweep(folder: Path) -> None:
    """What is known of a sweep, and what its sweeper found best."""
    write_record(folder / SWEEP, command=["seed=0"], status=FINISHED, run_id=None, varied=[], overviews=[0])
    (folder / BEST).write_text(yaml.safe_dump({"best_params": {"seed": 1}, "best_value": 0.5}))


def checkpoint(folder: Path) -> None:
    """What a run had learned when it ended."""
    learner = explained().predictor
    assert isinstance(learner, Resumable)
    Checkpoint(folder / CHECKPOINT, "ours", seconds=0).save(1, {"explainer": learner})


def policy(folder: Path) -> None:
    """What the policy of a dataset did."""
    known = explained().policy
    assert isinstance(known, TabularPolicy)
    save_policy(known, lake(), folder)


def served(folder: Path) -> None:
    """An MLflow store with a run, and beside it the run's model and a question to that."""
    run(folder)
    with (
        contextlib.chdir(folder),
        MlflowTracking(uri=uri(folder), experiment="doors").open("run", {}, {}) as kept_run,
    ):
        kept_run.model(folder / saved_runs.EXPLAINER, saved_runs.EXPLAINER)
    next(path for path in folder.rglob("MLmodel")).parent.rename(folder / "model")
    (folder / "run").write_text(str(kept_run.id))
    asked = {"columns": ["state", "action", "foil"], "data": [[0, 0, 1]]}
    (folder / "question.json").write_text(json.dumps({"dataframe_split": asked}))


def uri(folder: Path) -> str:
    return f"sqlite:///{folder}/mlflow.db"


def moved(folder: Path) -> str:
    """The id of the run in a store, which learns here that it was moved."""
    place = folder / "mlruns"  # files of a store lie nowhere else
    place.mkdir(exist_ok=True)
    (folder / "model").rename(place / "model")
    with contextlib.closing(sqlite3.connect(folder / "mlflow.db")) as database, database:
        database.execute("UPDATE logged_models SET artifact_location = ?", [str(place / "model")])
        database.execute("UPDATE runs SET artifact_uri = ?", [str(place)])
    return (folder / "run").read_text()


def agent(folder: Path) -> None:
    """A write_shard agent."""
    model = PPO("MlpPolicy", POLE, n_steps=8, batch_size=8, policy_kwargs={"net_arch": [4]}, device="cpu")
    model.save(folder / "agent.zip")


def zoo(folder: Path) -> None:
    """An agent as the RL-Zoo leaves it; its files side by side."""
    agent(folder)
    (folder / "config.yml").write_text(yaml.dump(OrderedDict(n_envs=8, policy="MlpPolicy")))
    (folder / "args.yml").write_text(yaml.dump(OrderedDict(algo="ppo", env=POLE)))


def statistics(folder: Path) -> None:
    """The statistics of a VecNormalize."""
    VecNormalize(DummyVecEnv([lambda: gym.make(POLE)])).save(str(folder / "statistics.pkl"))


def buffer(folder: Path) -> None:
    """A replay buffer."""
    DQN("MlpPolicy", POLE, buffer_size=4, device="cpu").save_replay_buffer(folder / "buffer.pkl")


def box() -> spaces.Box:
    """The observations of the pole."""
    space = gym.make(POLE).observation_space
    assert isinstance(space, spaces.Box)
    return space


def tracked(folder: Path) -> None:
    """The folder of a run that writes down what it tracks."""
    store = MlflowTracking(uri=f"sqlite:///{folder}/mlflow.db", experiment="small")
    with open_run(store, folder, "run", {}, {}) as run:
        run.metrics({"loss": 1.0})
