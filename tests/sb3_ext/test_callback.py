"""The callback shows what truly happened, for every algorithm, whatever SB3 makes of it for its policy."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from mlflow import MlflowClient
from sb3_contrib import ARS, QRDQN, TQC, TRPO, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback, EvalCallback, EveryNTimesteps
from stable_baselines3.common.logger import HumanOutputFormat
from stable_baselines3.common.vec_env import (
    DummyVecEnv,
    VecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
)

from sb3_ext.callback import ExplainerCallback, TransitionCallback
from sb3_ext.logger import RunOutput, logger
from sb3_ext.policies import DiscreteSB3Policy, RecurrentSB3Policy, as_policy
from tests.support import small_mdp
from tests.support.sb3_walks import NOISE, NUM_ENVS, OFF_POLICY, TINY, Walks, build
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.types import Array, FloatArray, RecurrentPolicy, Transitions, concatenate
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.tracking.mlflow_runs import MlflowTracking

ON_POLICY: dict[str, Any] = {"n_steps": 40, "policy_kwargs": TINY}
PPO_LIKE = ON_POLICY | {"batch_size": 30, "n_epochs": 2}

DISCRETE: list[tuple[type[BaseAlgorithm], dict[str, Any]]] = [
    (PPO, PPO_LIKE),
    (A2C, ON_POLICY),
    (TRPO, ON_POLICY | {"batch_size": 30}),
    (MaskablePPO, PPO_LIKE),
    (RecurrentPPO, PPO_LIKE | {"policy_kwargs": TINY | {"lstm_hidden_size": 4}}),
    (DQN, OFF_POLICY),
    (QRDQN, OFF_POLICY),
]
CONTINUOUS: list[tuple[type[BaseAlgorithm], dict[str, Any]]] = [
    (PPO, PPO_LIKE),
    (PPO, PPO_LIKE | {"use_sde": True, "policy_kwargs": TINY | {"squash_output": True}}),
    (RecurrentPPO, PPO_LIKE | {"policy_kwargs": TINY | {"lstm_hidden_size": 4}}),
    (SAC, OFF_POLICY),
    (TD3, OFF_POLICY | {"action_noise": NOISE}),
    (DDPG, OFF_POLICY | {"action_noise": NOISE}),
    (TQC, OFF_POLICY),
]
EVERY = [(a, k, False) for a, k in DISCRETE] + [(a, k, True) for a, k in CONTINUOUS]
NAMES = [f"{a.__name__}-{'box' if box else 'discrete'}-{i}" for i, (a, _, box) in enumerate(EVERY)]


def shown_in(
    model: BaseAlgorithm, steps: int = 240, others: Sequence[BaseCallback] = (), **settings: Any
) -> Transitions:
    """All that the callback shows of a training."""
    batches: list[Transitions] = []
    model.learn(steps, callback=[TransitionCallback([batches.append], **settings), *others])
    return concatenate(batches)


@pytest.mark.parametrize(("algorithm", "settings", "continuous"), EVERY, ids=NAMES)
def test_every_algorithm_shows_every_true_step(
    algorithm: type[BaseAlgorithm], settings: dict[str, Any], continuous: bool
) -> None:
    walks = Walks(continuous=continuous)
    shown = shown_in(build(algorithm, walks.env, settings), info_keys=["word"], batch_size=70)
    assert shown.action.dtype == (np.float32 if continuous else np.int64)
    walks.compare(shown)


@pytest.mark.parametrize(("algorithm", "settings", "continuous"), EVERY, ids=NAMES)
def test_outcomes_see_original_values_under_normalisation(
    algorithm: type[BaseAlgorithm], settings: dict[str, Any], continuous: bool
) -> None:
    walks = Walks(continuous=continuous)
    normalised = VecNormalize(walks.env)
    shown = shown_in(build(algorithm, normalised, settings), batch_size=100)
    walks.compare(shown)
    assert "step_wait" not in vars(walks.env)


def test_normalisation_clips_the_last_observations_that_the_callback_still_shows() -> None:
    """The test above could not fail otherwise: undoing the normalisation gives something else."""
    walks, clipped = Walks(), list[float]()
    env = VecNormalize(walks.env)

    class Undo(BaseCallback):
        def _on_step(self) -> bool:
            for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
                if done and not info["TimeLimit.truncated"]:
                    last = env.unnormalize_obs(info["terminal_observation"])
                    assert isinstance(last, np.ndarray)
                    clipped.append(last[2])
            return True

    walks.compare(shown_in(build(PPO, env, PPO_LIKE), others=[Undo()]))
    assert min(clipped) < 50


def test_stacked_frames_stay_stacked() -> None:
    walks = Walks()
    shown = shown_in(build(DQN, VecFrameStack(walks.env, 2), OFF_POLICY))
    np.testing.assert_array_equal(shown.next_observation[:, :3], shown.observation[:, 3:])
    first = np.append(np.full(NUM_ENVS, True), (shown.terminated | shown.truncated)[:-NUM_ENVS])
    assert not shown.observation[first, :3].any()
    newest = shown.observation[:, 3:], shown.next_observation[:, 3:]
    walks.compare(replace(shown, observation=newest[0], next_observation=newest[1]))


def test_wrappers_outside_the_normalisation_that_let_observations_pass() -> None:
    walks = Walks()
    walks.compare(shown_in(build(A2C, VecMonitor(VecNormalize(walks.env)), ON_POLICY)))
    walks = Walks(form="image")
    model = build(A2C, VecNormalize(walks.env, norm_obs=False), ON_POLICY | {"n_steps": 80}, "Cnn")
    assert isinstance(model.get_env(), VecTransposeImage)  # by SB3 itself
    walks.compare(shown_in(model))


@pytest.mark.parametrize(("algorithm", "settings"), [(A2C, ON_POLICY), (DQN, OFF_POLICY)])
@pytest.mark.parametrize("form", ["image", "dict"])
def test_images_and_dicts_come_as_the_environment_gave_them(
    algorithm: type[BaseAlgorithm], settings: dict[str, Any], form: str
) -> None:
    walks = Walks(form=form)
    slow = settings | ({"learning_starts": 10_000} if algorithm is DQN else {"n_steps": 80})
    model = build(algorithm, walks.env, slow, "Cnn" if form == "image" else "MultiInput")
    images = model.observation_space if form == "image" else model.observation_space["image"]
    assert images.shape == (2, 36, 38)
    walks.compare(shown_in(model))


def test_normalised_dicts() -> None:
    walks = Walks(form="dict")
    env = VecNormalize(walks.env, norm_obs_keys=["z"])
    walks.compare(shown_in(build(A2C, env, ON_POLICY | {"n_steps": 80}, "MultiInput")))


def test_normalisation_within_other_wrappers_is_refused() -> None:
    with pytest.raises(ValueError, match="wrapped in VecFrameStack"):
        shown_in(build(A2C, VecFrameStack(VecNormalize(Walks().env), 2), ON_POLICY))
    with pytest.raises(ValueError, match="wrapped in VecNormalize"):
        shown_in(build(A2C, VecNormalize(VecNormalize(Walks().env)), ON_POLICY))


def test_ars_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="ARS does not pass transitions to callbacks"):
        shown_in(ARS("LinearPolicy", Walks(num_envs=1).env, n_delta=2, device="cpu"))


def test_a_callback_that_is_called_now_and_then_is_refused() -> None:
    model = build(A2C, Walks().env, ON_POLICY)
    with pytest.raises(RuntimeError, match=r"30 steps .* pass the callback to model\.learn directly"):
        model.learn(100, callback=EveryNTimesteps(30, TransitionCallback([])))


def test_info_that_the_env_does_not_have_is_named() -> None:
    with pytest.raises(KeyError, match=r"info\['speed'\].* has only.*word"):
        shown_in(build(A2C, Walks().env, ON_POLICY), info_keys=["speed"])


def test_batches_are_as_large_as_asked_and_nothing_is_left_over() -> None:
    sizes: list[int] = []
    model = build(DQN, Walks().env, OFF_POLICY)
    model.learn(240, callback=TransitionCallback([lambda t: sizes.append(len(t))], batch_size=100))
    assert sizes == [102, 102, 36]


def test_training_goes_as_it_would_without_the_callback() -> None:
    def parameters(*callbacks: BaseCallback) -> list[torch.Tensor]:
        model = build(PPO, VecNormalize(Walks().env), PPO_LIKE)
        return list(model.learn(240, callback=list(callbacks)).policy.parameters())

    watched = parameters(TransitionCallback([]))
    assert all(torch.equal(a, b) for a, b in zip(watched, parameters(), strict=True))


def test_evaluation_beside_it_still_finds_the_same_wrappers() -> None:
    walks, judged = Walks(), VecNormalize(Walks(num_envs=1).env, training=False)
    evaluation = EvalCallback(judged, n_eval_episodes=1, eval_freq=30, verbose=0, warn=False)
    walks.compare(shown_in(build(A2C, VecNormalize(walks.env), ON_POLICY), others=[evaluation]))


class StopAt(BaseCallback):
    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def _on_step(self) -> bool:
        return self.num_timesteps < self.steps


def test_a_training_that_was_stopped_early_is_resumed_with_true_steps() -> None:
    """SB3 then acts on the observation before the last; that one step is left out."""
    walks, batches = Walks(), list[Transitions]()
    model = build(PPO, walks.env, PPO_LIKE)
    model.learn(240, callback=StopAt(75))
    assert len(walks.witnesses[0].seen) == 25
    model.learn(240, callback=TransitionCallback([batches.append]), reset_num_timesteps=False)
    walks.compare(concatenate(batches), leave_out=26)


class LstmWitness(BaseCallback):
    """Writes down the hidden state after each step, as the training itself has it."""

    def _on_training_start(self) -> None:
        self.seen: list[Array] = []

    def _on_step(self) -> bool:
        hidden, cell = (state[0].numpy(force=True) for state in self.locals["lstm_states"].pi)
        self.seen.append(np.concatenate([hidden, cell], axis=1))
        return True


def recurrent(env: VecEnv) -> tuple[RecurrentPPO, RecurrentSB3Policy]:
    settings = PPO_LIKE | {"policy_kwargs": TINY | {"lstm_hidden_size": 4}, "learning_rate": 0.05}
    model = build(RecurrentPPO, env, settings)
    policy = as_policy(model)
    assert isinstance(policy, RecurrentSB3Policy)
    return model, policy


def test_observations_carry_the_hidden_state_that_the_agent_had() -> None:
    walks, witness = Walks(), LstmWitness()
    model, policy = recurrent(walks.env)
    shown = shown_in(model, others=[witness], recurrent=policy, batch_size=70)
    after = np.concatenate(witness.seen)
    np.testing.assert_allclose(shown.next_observation[:, 3:], after, atol=1e-6)
    ended = shown.terminated | shown.truncated
    before = np.where(ended[:-NUM_ENVS, None], 0, after[:-NUM_ENVS])
    np.testing.assert_allclose(shown.observation[NUM_ENVS:, 3:], before, atol=1e-6)
    assert not shown.observation[:NUM_ENVS, 3:].any()
    assert np.abs(after).max() > 0.1
    plain = shown.observation[:, :3], shown.next_observation[:, :3]
    walks.compare(replace(shown, observation=plain[0], next_observation=plain[1]))


def test_a_resumed_recurrent_training_is_shown_from_the_next_episodes_on() -> None:
    walks, batches, witness = Walks(), list[Transitions](), LstmWitness()
    model, policy = recurrent(walks.env)
    model.learn(120)
    recorder = TransitionCallback([batches.append], recurrent=policy)
    model.learn(240, callback=[recorder, witness], reset_num_timesteps=False)
    shown = concatenate(batches)
    last = {row.tobytes() for row in np.concatenate(witness.seen).round(4) + 0.0}
    assert all((row.round(4) + 0.0).tobytes() in last for row in shown.next_observation[:, 3:])
    assert 240 - 12 * NUM_ENVS <= len(shown) < 240


class Keeping:
    """A learner that only keeps, with the version of the policy at the time."""

    horizon = 1
    tie = 0.0

    def __init__(self, policy: RecurrentPolicy | None = None) -> None:
        self.batches: list[Transitions] = []
        self.policy = policy
        self.versions: list[int] = []

    def update(self, transitions: Transitions) -> None:
        self.batches.append(transitions)
        if self.policy is not None:
            self.versions.append(self.policy.version)
            advanced = self.policy.advance(transitions.observation)
            np.testing.assert_allclose(transitions.next_observation[:, 3:], advanced, atol=1e-6)

    def metrics(self) -> dict[str, float]:
        return {"explainer/loss": 0.5}

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        return np.zeros((len(observations), 1, 2))

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.zeros(len(observations))


LEGEND = OutcomeSet([event("stumbles", lambda t: t.terminated)]).legend


def test_hidden_states_are_handed_over_while_the_weights_they_come_from_are_in_force() -> None:
    model, policy = recurrent(Walks().env)
    learner = Keeping(policy)
    model.learn(240, callback=ExplainerCallback(Explainer(learner, policy, LEGEND)))
    assert len(set(learner.versions)) == 2  # two rollouts of 40 steps in 3 environments
    assert sum(len(batch) for batch in learner.batches) == 240


def test_after_training_hidden_states_are_those_of_the_final_weights() -> None:
    model, policy = recurrent(Walks().env)
    learner, witness = Keeping(), LstmWitness()
    callback = ExplainerCallback(Explainer(learner, policy, LEGEND), when="after", batch_size=50)
    model.learn(240, callback=[callback, witness])
    kept = concatenate(learner.batches)
    assert len(kept) == 240
    np.testing.assert_allclose(kept.next_observation[:, 3:], policy.advance(kept.observation), atol=1e-6)
    assert np.abs(kept.next_observation[:, 3:] - np.concatenate(witness.seen)).max() > 0.01


def discrete(model: BaseAlgorithm) -> DiscreteSB3Policy:
    policy = as_policy(model, deterministic=False)
    assert isinstance(policy, DiscreteSB3Policy)
    return policy


def mdp_explainer(model: BaseAlgorithm, outcomes: OutcomeSet) -> Explainer:
    policy = discrete(model)
    learner = ReplayedFHTD(small_mdp.environment(), policy, outcomes, horizon=6)
    return Explainer(learner, policy, outcomes.legend)


def small_model(algorithm: type[BaseAlgorithm], **settings: Any) -> Any:
    env = DummyVecEnv([lambda: gym.make("SmallMDP-v0")] * 8)
    return build(algorithm, env, settings | {"policy_kwargs": TINY})


small_ppo = partial(small_model, PPO, n_steps=250, batch_size=500, n_epochs=2, ent_coef=0.1)
small_dqn = partial(small_model, DQN, train_freq=4, exploration_final_eps=0.3, learning_starts=500)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("make", "when"),
    [
        pytest.param(small_ppo, "alongside", id="PPO-alongside"),
        pytest.param(small_ppo, "after", id="PPO-after", marks=pytest.mark.slow),
        pytest.param(small_dqn, "alongside", id="DQN-alongside", marks=pytest.mark.slow),
        pytest.param(small_dqn, "after", id="DQN-after"),
    ],
)
def test_explanations_converge_to_the_truth_of_the_final_policy(
    make: Callable[[], BaseAlgorithm], when: str
) -> None:
    errors = []
    for steps in (800, 24_000):
        model, outcomes = make(), small_mdp.outcomes()
        explainer = mdp_explainer(model, outcomes)
        model.learn(steps, callback=ExplainerCallback(explainer, when=when))
        exact = ExactSolution(small_mdp.environment(), discrete(model), outcomes, horizon=6)
        learned = small_mdp.dense(explainer.predictor.table())  # type: ignore[attr-defined]
        errors.append(np.sqrt(np.square(learned - small_mdp.dense(exact.table())).mean()))
    assert errors[1] < 0.4 * errors[0]
    assert errors[1] < 0.02


def test_outcomes_name_the_info_they_need() -> None:
    outcomes = OutcomeSet([event("odd", lambda t: t.info["parity"], info_keys=["parity"])])
    model = small_model(A2C)
    explainer = mdp_explainer(model, outcomes)
    model.learn(200, callback=ExplainerCallback(explainer))
    assert explainer.explain(np.arange(small_mdp.NUM_STATES)).support.sum() > 0


def test_a_predictor_that_does_not_learn_is_refused() -> None:
    model, outcomes = small_model(A2C), small_mdp.outcomes()
    policy = discrete(model)
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=2)
    with pytest.raises(TypeError, match="ExactSolution does not learn"):
        ExplainerCallback(Explainer(solution, policy, outcomes.legend))


def test_a_word_that_says_no_time_is_refused() -> None:
    explainer = mdp_explainer(small_model(A2C), small_mdp.outcomes())
    with pytest.raises(ValueError, match="when must be one of alongside, after, got 'before'"):
        ExplainerCallback(explainer, when="before")


def test_the_run_keeps_the_figures_of_sb3_and_of_the_explainer(tmp_path: Path) -> None:
    model = build(A2C, VecMonitor(Walks().env), ON_POLICY)
    explainer = Explainer(Keeping(), as_policy(model), LEGEND)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracking = MlflowTracking(uri=uri, experiment="x")
    with tracking.open("training", {}, {}) as run, (tmp_path / "log.txt").open("w") as file:
        model.set_logger(logger(run.metrics, HumanOutputFormat(file)))
        model.learn(480, callback=ExplainerCallback(explainer, run=run), log_interval=1)
    assert run.id is not None
    client = MlflowClient(uri)
    metrics = client.get_run(run.id).data.metrics
    assert {"rollout/ep_rew_mean", "train/value_loss", "explainer/loss"} <= set(metrics)
    assert 0 < metrics["explainer/share_of_training"] < 1
    assert metrics["time/total_timesteps"] == 480
    assert [m.step for m in client.get_metric_history(run.id, "rollout/ep_rew_mean")] == [120, 240, 360, 480]
    assert "ep_rew_mean" in (tmp_path / "log.txt").read_text()


def test_without_a_run_the_figures_go_to_sb3s_own_logger() -> None:
    model = small_model(A2C)
    model.learn(200, callback=ExplainerCallback(mdp_explainer(model, small_mdp.outcomes())))
    assert 0 < model.logger.name_to_value["explainer/share_of_training"] < 1


def test_only_finite_numbers_are_kept() -> None:
    kept: list[tuple[Mapping[str, float], int]] = []
    values = {
        "int": 1,
        "float32": np.float32(0.5),
        "nan": np.nan,
        "inf": np.inf,
        "word": "fast",
        "yes": True,
        "many": np.zeros(3),
        "hidden": 2.0,
    }
    output = RunOutput(lambda numbers, step: kept.append((numbers, step)))
    output.write(values, {"hidden": ("mlflow",), "int": ("tensorboard",)}, step=7)
    assert kept == [({"int": 1.0, "float32": 0.5}, 7)]
