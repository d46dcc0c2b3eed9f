"""Ten lines from an agent to an answer, in the places where people work."""

import json
import logging
import os
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import hydra
import numpy as np
import pytest
import torch
from gymnasium import spaces
from hydra.core.global_hydra import GlobalHydra
from PIL import Image
from sb3_contrib import MaskablePPO, RecurrentPPO
from stable_baselines3 import DQN, PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

import tpd
from tests.support.commands import ROOT, fork_server, tpd_run
from tpd.core.outcomes import FIRST
from tpd.core.types import Array, BoolArray
from tpd.policies.pretrained import ExpectedReturn

QUICK = ["explainer=network", "explainer.fit_updates=20", "evaluation.seconds=2"]


def balance(observations: Array) -> BoolArray:
    """Push towards the side that the pole leans to."""
    return np.asarray(observations[:, 2] > 0)


def in_right_half(t: tpd.Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, 0] > 0)


@pytest.fixture(scope="module")
def explainer() -> tpd.Explainer:
    """Of CartPole, which has learned a little."""
    return tpd.Explainer(balance, env="CartPole-v1", horizon=10).learn(2000, overrides=QUICK)


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("agents") / "agent.zip"
    DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu").save(path)
    return path


@pytest.fixture(scope="module")
def saved_once(explainer: tpd.Explainer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "saved"
    explainer.save(folder)
    return folder


@pytest.fixture
def saved(saved_once: Path, tmp_path: Path) -> Path:
    """The folder of the explainer above, to be changed."""
    return Path(shutil.copytree(saved_once, tmp_path / "saved"))


# Playing and asking


def test_episodes_are_sorted_by_their_return_and_made_of_moments() -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1")
    episodes = explainer.play(seeds=range(4))
    returns = [episode.total_reward for episode in episodes]
    assert returns == sorted(returns)
    assert {episode.seed for episode in episodes} == {0, 1, 2, 3}
    episode = episodes[0]
    moment = episode[5]
    assert (moment.seed, moment.step) == (episode.seed, 5)
    assert np.array_equal(moment.observation, episode.transitions.observation[5])
    assert episode[-1].step == len(episode) - 1
    assert len(episode[2:5]) == 3
    with pytest.raises(IndexError):
        episode[len(episode)]
    assert episode.happened["falls"] == [len(episode) - 1]


def test_a_moment_is_asked_of_the_simulator_before_anything_is_learned() -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1", horizon=8)
    last = explainer.play(seeds=[0])[0][-1]
    answer = explainer.why(last)
    assert answer.how.kind == "rolled out"
    assert not answer.how.reason
    assert answer.table.loc["first falls", "fact"] == 1
    assert answer.fact.learned is None
    assert not answer.how.verdicts
    assert "falls" in answer.text
    assert answer.own == answer.fact.name
    assert len(answer.to_frame()) == 8 * len(explainer.outcomes.outcomes)


def test_tables_end_with_the_discounted_return() -> None:
    explainer = tpd.Explainer(lambda s: np.full(len(s), 2), env="FrozenLake-v1", horizon=20)
    answer = explainer.why(explainer.play(seeds=[0])[0][0], rollouts=50)
    row, explanation = answer.table.iloc[-1], answer.fact.explanation
    assert answer.table.index[-1] == "return within 20 steps"
    assert row["fact"] == explanation.expected_return[0, -1] != explanation.expected_reward[0].sum()
    assert row["fact_low"] <= row["fact"] <= row["fact_high"]
    assert (row["fact_low"], row["fact_high"]) == tuple(end[0, -1] for end in explanation.return_band())
    assert row["difference"] == row["fact"] - row["foil"]
    own = {"return": lambda t: t.reward > 0}  # an event of the user's keeps its name
    named = tpd.Explainer(lambda s: np.full(len(s), 2), env="FrozenLake-v1", events=own, horizon=5)
    index = named.why(named.play(seeds=[0])[0][0], rollouts=5).table.index
    assert [name for name in index if "return" in name] == ["return", "first return"]


def test_a_misspelt_action_is_told_the_nearest_one() -> None:
    env = tpd.Environment("CartPole-v1", action_names=["push left", "push right"])
    with pytest.raises(ValueError, match=r"no action 'push_left'; .*; did you mean push left\?"):
        env.action("push_left")


def test_actions_are_named_as_on_the_command_line() -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1", horizon=5)
    moment = explainer.play(seeds=[0])[0][3]
    answer = explainer.why(moment, action="push right", foil=0)
    assert (answer.fact.name, answer.foil and answer.foil.name) == ("push right", "push left")
    with pytest.raises(ValueError, match="has no action 'jump'"):
        explainer.why(moment, action="jump")
    with pytest.raises(ValueError, match="are both push left"):
        explainer.why(moment, action=0, foil=0)


def test_nothing_learned_is_said_and_not_guessed() -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1")
    with pytest.raises(ValueError, match=r"nothing is learned yet.*call learn"):
        explainer.why(np.zeros(4))
    with pytest.raises(ValueError, match="nothing is learned yet"):
        explainer.explain(np.zeros((1, 4)))
    with pytest.raises(ValueError, match="nothing to save"):
        explainer.save("nowhere")
    assert str(explainer.quality) == repr(explainer.quality) == "nothing is learned yet: call learn()"
    assert explainer.quality.table is None
    with pytest.raises(ValueError, match="nothing to plot"):
        explainer.quality.plot()


def test_an_observation_gets_what_was_learned(explainer: tpd.Explainer) -> None:
    answer = explainer.why(np.zeros(4, dtype=np.float32))
    assert answer.how.kind == "learned"
    assert "only an observation is given" in str(answer.how)
    assert {*answer.how.verdicts} == {*explainer.outcomes.legend.names, "return"}
    assert answer.table.iloc[-1]["verdict"] == answer.how.verdicts["return"]
    both = explainer.why(explainer.play(seeds=[1])[0][0])
    assert both.fact.learned is not None
    assert len(both.warnings) == 2


def test_batches_are_explained(explainer: tpd.Explainer) -> None:
    explanation = explainer.explain(np.zeros((3, 4), dtype=np.float32), np.array([0, 1, 0]))
    assert explanation.expected.shape == (3, 10, len(explainer.outcomes.outcomes))
    own = explainer.explain(np.zeros((3, 4), dtype=np.float32))
    assert own.actions.tolist() == [0, 0, 0]
    assert own.name_of(0) == "state (0, 0, 0, 0): push left"
    named = explainer.explain(np.zeros((3, 4), dtype=np.float32), ["push left", "push right", "push left"])
    assert np.array_equal(named.expected, explanation.expected)
    with pytest.raises(ValueError, match="has no action 'jump'"):
        explainer.explain(np.zeros((1, 4), dtype=np.float32), ["jump"])
    for shape in ((4,), (2, 3)):
        with pytest.raises(ValueError, match=rf"shape \(batch, 4\), got {re.escape(str(shape))};"):
            explainer.explain(np.zeros(shape))


def test_plots_of_batches_have_bands_or_say_how_to_get_them(explainer: tpd.Explainer) -> None:
    observations = np.zeros((2, 4), dtype=np.float32)
    for draws in (0, 59):
        one, other = (explainer.explain(observations, np.full(2, action), draws=draws) for action in (0, 1))
        for figure in (one.plot(), (one - other).plot()):
            texts = [text.get_text() for axes in figure.axes for text in axes.texts]
            assert any("draws=59" in text for text in texts) == (draws == 0)
            labels = [text.get_text() for text in figure.legends[0].get_texts()]
            assert ("90% band" in labels) == (draws > 0)
            assert "push left" in figure.axes[0].get_title()


def test_quality_begins_with_the_return(explainer: tpd.Explainer) -> None:
    assert explainer.quality is not None
    assert str(explainer.quality).startswith("mean return in this environment: ")
    table = explainer.quality.table
    assert table is not None
    assert {*table.columns.get_level_values(1)} == {"by 1", "by 5", "by 9"}
    assert {*table.columns.get_level_values(2)} == {"skill", "verdict"}
    assert "falls" in table.index


def test_actions_that_the_mask_forbids_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    def pick_up(states: Array) -> Array:
        return np.full(len(states), 4)

    def forbidden(t: tpd.Transitions) -> BoolArray:
        return np.asarray(~taxi.env.mask(t.observation)[:, 4])

    taxi = tpd.Explainer(pick_up, env="Taxi-v4", events={"arrives": lambda t: t.reward > 0})
    for _ in range(2):
        taxi.play(seeds=range(3), steps=10)
    said = [record.getMessage() for record in caplog.records if "forbids" in record.getMessage()]
    assert len(said) == 1
    assert "the mask of Taxi-v4 forbids, at 100.0% of the steps" in said[0]
    caplog.clear()
    tpd.Explainer(pick_up, env="Taxi-v4").play(seeds=[0], steps=10)  # its own events tell of it
    tpd.Explainer(pick_up, env="Taxi-v4", events={"invalid": forbidden}).play(seeds=[0], steps=10)
    tpd.Explainer(lambda s: np.zeros(len(s)), env="FrozenLake-v1").play(seeds=[0])
    assert "forbids" not in caplog.text


def test_a_stochastic_world_is_rolled_out_often() -> None:
    explainer = tpd.Explainer(lambda s: np.zeros(len(s)), env="FrozenLake-v1", horizon=5)
    answer = explainer.why(explainer.play(seeds=[0])[0][0], rollouts=30)
    assert answer.how.words == "by 30 rollouts"


# The same as the command line


def test_python_and_the_command_line_learn_the_same(zipped: Path, tmp_path: Path) -> None:
    settings = ["explainer=network", "explainer.fit_updates=20", "evaluation=none"]
    agent = tpd.load_agent(zipped, env="CartPole-v1")
    python = tpd.Explainer(agent, horizon=10).learn(1500, seed=3, overrides=settings)
    tpd_run(
        tmp_path,
        "experiment=cart_pole",
        f"policy.path={zipped}",
        "seed=3",
        "training.steps=1500",
        "explainer.horizon=10",
        "tracking=none",
        "recording.episodes=1",
        "overview=false",
        f"hydra.run.dir={tmp_path / 'run'}",
        *settings,
    )
    command = tpd.load(tmp_path / "run")
    observations = python.play(seeds=[0])[0].transitions.observation
    ours, theirs = (each.explain(observations).expected for each in (python, command))
    assert np.array_equal(ours, theirs)


# Saving


def test_what_is_saved_answers_the_same(explainer: tpd.Explainer, tmp_path: Path) -> None:
    explainer.save(tmp_path / "saved")
    observations = np.zeros((2, 4), dtype=np.float32)
    with pytest.raises(ValueError, match=r"agent|trust"):
        tpd.load(tmp_path / "saved").explain(observations)
    loaded = tpd.load(tmp_path / "saved", trust=[__name__.partition(".")[0]])
    assert np.array_equal(loaded.explain(observations).expected, explainer.explain(observations).expected)
    assert str(loaded.quality) == str(explainer.quality)
    moment = loaded.play(seeds=[0])[0][-1]
    assert loaded.why(moment).text == explainer.why(moment).text


def test_what_was_loaded_can_be_saved_again_elsewhere_and_in_place(zipped: Path, tmp_path: Path) -> None:
    agent = tpd.load_agent(zipped, env="CartPole-v1")
    events = {"right half": in_right_half}
    first = tpd.Explainer(agent, events=events, horizon=5).learn(1000, overrides=QUICK)
    episodes = first.play(seeds=range(2))
    first.save(tmp_path / "first")
    tpd.load(tmp_path / "first", events=events).save(tmp_path / "second")
    tpd.load(tmp_path / "second", events=events).save(tmp_path / "second")
    loaded = tpd.load(tmp_path / "second", events=events)
    observations = episodes[0].transitions.observation
    ours, theirs = (each.explain(observations, draws=59) for each in (first, loaded))
    assert np.array_equal(ours.expected, theirs.expected)
    assert np.array_equal(ours.band().high, theirs.band().high, equal_nan=True)
    assert np.array_equal(ours.told.by, theirs.told.by)
    assert np.array_equal(ours.actions, loaded.policy.action(observations))
    assert str(loaded.quality) == str(first.quality)
    assert loaded._run.recording is not None
    assert np.array_equal(loaded._run.recording.seeds, [episode.seed for episode in episodes])
    assert np.array_equal(loaded._run.recording.episodes[0].observation, observations)


def test_another_agent_than_the_explained_one_is_refused(zipped: Path, tmp_path: Path) -> None:
    first = tpd.Explainer(tpd.load_agent(zipped, env="CartPole-v1"), horizon=5).learn(1000, overrides=QUICK)
    first.play(seeds=range(2))
    first.save(tmp_path / "saved")
    same = tpd.load_agent(zipped, env="CartPole-v1")
    assert tpd.load(tmp_path / "saved", agent=same).quality.lines == first.quality.lines
    with pytest.raises(ValueError, match=r"another agent was explained; .* other actions at 100 % of the"):
        tpd.load(tmp_path / "saved", agent=lambda observations: 1 - first.policy.action(observations))


class Fuse(gym.Env[Any, Any]):
    """Each step gives 1; the second action may end in a rare loss."""

    observation_space = gym.spaces.Box(-99, 99, (1,))
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        lost = action == 1 and self.np_random.random() < 1e-9
        return np.full(1, self.time, np.float32), -99.0 if lost else 1.0, lost or self.time == 9, False, {}


def test_a_return_without_spread_in_random_rollouts_is_remarked() -> None:
    lost = {"lost": lambda t: t.terminated & (t.reward < 0)}
    explainer = tpd.Explainer(lambda o: np.zeros(len(o), dtype=int), env=Fuse, events=lost, horizon=4)
    answer = explainer.why(explainer.play(seeds=[0])[0][2], foil=1, rollouts=50)
    (remark,) = (said for said in answer.remarks if "band has no width" in said)
    assert "the return after action 1 is the same in all 50 rollouts" in remark
    assert remark.endswith("may have a probability of up to 6 %")
    cart = tpd.Explainer(balance, env="CartPole-v1", horizon=4)
    certain = cart.why(cart.play(seeds=[0])[0][0])
    assert not any("band has no width" in said for said in certain.remarks)


def test_more_can_be_asked_of_an_answer(explainer: tpd.Explainer) -> None:
    moment = explainer.play(seeds=range(3))[0][-8]
    answer = explainer.why(moment)
    nearest = answer.nearest_state()
    assert nearest.observation is not None
    assert balance(nearest.observation[None])[0] != balance(moment.observation[None])[0]
    assert f"where the agent chooses {answer.foil.name}" in nearest.text if answer.foil else False
    drivers = answer.drivers("push left")
    assert drivers.what == f"push left by step 9 after {answer.fact.name}"
    assert drivers.withheld or set(drivers.names) <= set(explainer.env.feature_names)
    unlearned = tpd.Explainer(balance, env="CartPole-v1", horizon=5)
    with pytest.raises(ValueError, match=r"call learn\(\) first"):
        unlearned.why(unlearned.play(seeds=[0])[0][0]).drivers()


def test_saved_episodes_have_the_numbers_that_play_gave_them() -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1", horizon=5)
    episodes = explainer.play(seeds=range(6))
    returns = [episode.total_reward for episode in episodes]
    assert returns == sorted(returns)
    assert [episode.seed for episode in episodes] != sorted(episode.seed for episode in episodes)
    saved = explainer._run.recording
    assert saved is not None
    for number, episode in enumerate(episodes):
        moment = saved.moment(number, len(episode) - 1)
        assert moment.seed == episode.seed
        assert np.array_equal(moment.observation, episode[-1].observation)
        rows = slice(int(saved.episodes.begins[number]), int(saved.episodes.begins[number]) + len(episode))
        happened = explainer.outcomes.observe(episode.transitions).outcome[:, :-1]
        assert np.array_equal(saved.happened[rows], happened)


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{re.escape(str(tmp_path))}: not a folder that"):
        tpd.load(tmp_path)


def test_functions_that_cannot_be_stored_are_asked_for_by_name(tmp_path: Path) -> None:
    def make() -> gym.Env[Any, Any]:
        return gym.make("CartPole-v1", max_episode_steps=50)

    events = {"right half": lambda t: t.next_observation[:, 0] > 0}
    settings = ["explainer=network", "explainer.fit_updates=20", "evaluation=none"]
    explainer = tpd.Explainer(balance, env=make, events=events, horizon=5)
    explainer.learn(1000, overrides=settings).save(tmp_path / "saved")
    with pytest.raises(
        ValueError, match=r"env of this run is not stored.*pass env again, tpd.load\(.*env=\.\.\.\)"
    ):
        tpd.load(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"right half.*are not stored.*events=\.\.\.\)"):
        tpd.load(tmp_path / "saved", env=make)
    with pytest.raises(ValueError, match=r"events: expected those of the run, .*, got left half"):
        tpd.load(tmp_path / "saved", env=make, events={"left half": in_right_half})
    loaded = tpd.load(tmp_path / "saved", env=make, events=events, trust=["tests"])
    observations = np.zeros((1, 4), dtype=np.float32)
    assert "functions cannot be stored, so tpd.load does not check" in loaded.notes[-1]
    assert np.array_equal(loaded.explain(observations).expected, explainer.explain(observations).expected)


# Environments


class Shifted(gym.ObservationWrapper[Any, Any, Any]):
    """The cart is one unit further to the right; it does not record how it was made."""

    def observation(self, observation: Any) -> Any:
        return observation + np.array([1, 0, 0, 0], dtype=np.float32)


def halved(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    return gym.wrappers.TransformReward(env, lambda reward: float(reward) / 2)


def short_of_reward(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Changes the reward in `step`, which its class does not tell."""

    class Late(gym.Wrapper[Any, Any, Any, Any]):
        def step(self, action: Any) -> Any:
            observed, reward, terminated, *rest = self.env.step(action)
            return observed, float(reward) - terminated, terminated, *rest

    return Late(env)


@pytest.mark.parametrize(
    ("wrap", "reason"),
    [
        (gym.wrappers.RecordEpisodeStatistics, ""),
        (gym.wrappers.NormalizeObservation, "observations: changed by NormalizeObservation"),
        (partial(gym.wrappers.FrameStackObservation, stack_size=2), "observations: of another space"),
        (halved, "rewards: changed by TransformReward"),
        (short_of_reward, "it differs from CartPole-v1 at step"),
    ],
)
def test_wrappers_keep_the_names_and_events_that_they_leave_unchanged(
    wrap: Callable[[gym.Env[Any, Any]], gym.Env[Any, Any]], reason: str
) -> None:
    def wrapped() -> gym.Env[Any, Any]:
        return wrap(gym.make("CartPole-v1"))

    def push_left(observations: Array) -> BoolArray:
        return np.zeros(len(observations), dtype=np.bool_)

    explainer = tpd.Explainer(push_left, env=wrapped)
    assert explainer.env.numbered_action_names == ("push left", "push right")
    assert ("falls" in explainer.outcomes.legend.names) == (not reason)
    assert explainer.notes[0].startswith("tpd's own events for CartPole-v1")
    assert ("are not used" in explainer.notes[0]) == bool(reason)
    assert reason in explainer.notes[0]


def test_a_wrapper_may_name_what_it_changes() -> None:
    class Named(Shifted):
        action_names = ("left", "right")
        observation_names = ("x", "speed", "angle", "turn")

    explainer = tpd.Explainer(balance, env=lambda: Named(gym.make("CartPole-v1")))
    assert explainer.env.numbered_action_names == ("left", "right")
    assert explainer.env.feature_names == ("x", "speed", "angle", "turn")


class Masked(gym.Wrapper[Any, Any, Any, Any]):
    """Only the action towards the centre is valid."""

    def action_masks(self) -> BoolArray:
        return np.ones(2, dtype=np.bool_)


class MaskedByFunction(Masked):
    @staticmethod
    def mask_function(observations: Array) -> BoolArray:
        return np.column_stack([observations[:, 0] > 0, observations[:, 0] <= 0])


def test_a_masked_environment_says_how_masks_are_given_and_takes_them_from_its_class() -> None:
    with pytest.raises(ValueError, match=r"add a static method mask_function\(observations\) to its class"):
        tpd.Explainer(balance, env=lambda: Masked(gym.make("CartPole-v1")))

    def centred(observations: Array) -> Array:
        return (observations[:, 0] <= 0).astype(int)

    explainer = tpd.Explainer(centred, env=lambda: MaskedByFunction(gym.make("CartPole-v1")))
    moment = explainer.play(seeds=range(2))[0][0]
    assert moment.valid(explainer.env).sum() == 1
    assert explainer.why(moment).foil is None  # there is no other valid action


def test_a_missing_agent_is_named_before_its_environment() -> None:
    with pytest.raises(FileNotFoundError, match="zoo/nope: there is no such file or folder"):
        tpd.load_agent("zoo/nope")


def test_a_wrapper_of_actions_loses_their_names() -> None:
    def swapped() -> gym.Env[Any, Any]:
        return gym.wrappers.TransformAction(
            gym.make("CartPole-v1"), lambda action: 1 - action, spaces.Discrete(2)
        )

    explainer = tpd.Explainer(balance, env=swapped)
    assert explainer.env.numbered_action_names == ("action 0", "action 1")
    assert "actions: changed by TransformAction" in explainer.notes[0]


def test_a_function_may_make_the_environment_with_wrappers() -> None:
    explainer = tpd.Explainer(
        balance,
        env=lambda render_mode=None: Shifted(gym.make("CartPole-v1", render_mode=render_mode)),
        events={"right half": in_right_half},
        horizon=5,
    )
    answer = explainer.why(explainer.play(seeds=[0])[0][0])
    assert answer.table.loc["right half", "fact"] == 5
    assert answer.fact.picture is not None


def test_a_live_environment_is_made_again_from_its_spec() -> None:
    live = gym.make("CartPole-v1", max_episode_steps=30)
    explainer = tpd.Explainer(balance, env=live)
    assert explainer.env.time_limit == 30
    assert explainer.env.make().unwrapped is not live.unwrapped
    scaled = gym.wrappers.RescaleObservation(gym.make("MountainCar-v0"), np.float32(0), np.float32(1))
    space = tpd.Explainer(lambda o: np.zeros(len(o)), env=scaled, events={"end": lambda t: t.terminated})
    assert space.env.observation_space.high.max() == 1  # type: ignore[attr-defined]
    assert tpd.Explainer(balance, env=gym.spec("CartPole-v1")).env.id == "CartPole-v1"


def test_environments_that_cannot_be_made_again_are_refused() -> None:
    with pytest.raises(ValueError, match=r"Shifted do not record their arguments.*pass a function"):
        tpd.Explainer(balance, env=Shifted(gym.make("CartPole-v1")))
    bare = gym.make("CartPole-v1").unwrapped
    bare.spec = None
    with pytest.raises(ValueError, match=r"has no spec.*pass a function"):
        tpd.Explainer(balance, env=bare)
    vector = DummyVecEnv([lambda: gym.make("CartPole-v1")])
    with pytest.raises(TypeError, match="DummyVecEnv contains many environments; pass one environment"):
        tpd.Explainer(balance, env=vector)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="CartPoleVectorEnv contains many environments"):
        tpd.Explainer(balance, env=gym.make_vec("CartPole-v1"))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="but it returned a int"):
        tpd.Explainer(balance, env=lambda: 5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="env: pass the environment"):
        tpd.Explainer(balance)


# Agents


def test_a_live_model_needs_no_loading() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", seed=0, device="cpu", n_steps=64)
    explainer = tpd.Explainer(model, env="CartPole-v1", horizon=5)
    assert explainer.why(explainer.play(seeds=[0])[0][0]).fact.name.startswith("push")
    with pytest.raises(ValueError, match="but MountainCar-v0 has Box"):
        tpd.Explainer(model, env="MountainCar-v0")


def test_statistics_of_vec_normalize_are_given_or_refused(tmp_path: Path) -> None:
    world = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    model = PPO("MlpPolicy", world, seed=0, device="cpu", n_steps=64)
    model.learn(64)
    model.save(tmp_path / "agent.zip")
    world.save(str(tmp_path / "statistics.pkl"))
    with pytest.raises(ValueError, match=r"trained under VecNormalize.*vec_normalize="):
        tpd.load_agent(tmp_path / "agent.zip", env="CartPole-v1")
    observations = np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)
    live = tpd.Explainer(model, env="CartPole-v1").policy.action_values(observations)
    assert live is None  # an actor has none
    sides = [
        tpd.load_agent(tmp_path / "agent.zip", env="CartPole-v1", vec_normalize=given).policy
        for given in (tmp_path / "statistics.pkl", world)
    ]
    own = tpd.Explainer(model, env="CartPole-v1").policy.action(observations)
    assert all(np.array_equal(side.action(observations), own) for side in sides)
    without = tpd.load_agent(tmp_path / "agent.zip", env="CartPole-v1", vec_normalize=False)
    assert len(without.policy.action(observations)) == 50
    rebuilt = PPO.load(tmp_path / "agent.zip", device="cpu")
    with pytest.raises(ValueError, match="but no longer has it"):
        tpd.Explainer(rebuilt, env="CartPole-v1")
    again = tpd.Explainer(rebuilt, env="CartPole-v1", vec_normalize=world).policy
    assert np.array_equal(again.action(observations), own)


def test_masked_agents_choose_among_what_is_valid() -> None:
    model = MaskablePPO("MlpPolicy", "FuelTaxi-v0", seed=0, device="cpu", n_steps=32)
    explainer = tpd.Explainer(model, env="FuelTaxi-v0", horizon=5)
    moment = explainer.play(seeds=[0], steps=10)[0][3]
    answer = explainer.why(moment, rollouts=10)
    assert moment.mask is not None
    assert not moment.mask.all()
    names = [explainer.env.name_of_action(a) for a in np.flatnonzero(moment.mask)]
    assert {side.action for side in answer.sides} <= {*names}


def test_recurrent_agents_are_asked_about_moments() -> None:
    model = RecurrentPPO("MlpLstmPolicy", "CartPole-v1", seed=0, device="cpu", n_steps=32)
    explainer = tpd.Explainer(model, env="CartPole-v1", horizon=5)
    assert explainer.why(explainer.play(seeds=[0], steps=20)[0][3]).how.kind == "rolled out"
    with pytest.raises(ValueError, match=r"hidden state.*ask about a moment"):
        explainer.why(np.zeros(4))


class Rooms(gym.Env[Any, Any]):
    """Two rooms and a door, with observations in a dict."""

    observation_space = spaces.Dict({"room": spaces.Discrete(2), "noise": spaces.Box(-1, 1, (2,))})
    action_space = spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.room = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.room = int(action)
        return self._seen(), float(self.room), False, self.np_random.random() < 0.1, {}

    def _seen(self) -> dict[str, Any]:
        return {"room": self.room, "noise": self.np_random.uniform(-1, 1, 2).astype(np.float32)}


def test_observations_of_a_dict_space_are_plain_dicts() -> None:
    model = PPO("MultiInputPolicy", Rooms(), seed=0, device="cpu", n_steps=32)
    settings = ["explainer=network", "explainer.fit_updates=20", "evaluation=none"]
    explainer = tpd.Explainer(
        model, env=Rooms, events={"second room": lambda t: t.next_observation["room"] == 1}, horizon=5
    )
    assert explainer.why(explainer.play(seeds=[0])[0][0], rollouts=10).how.kind == "rolled out"
    explainer.learn(1000, overrides=settings)
    one = {"room": 0, "noise": np.zeros(2, dtype=np.float32)}
    assert explainer.why(one).how.kind == "learned"
    several = {"room": np.array([0, 1]), "noise": np.zeros((2, 2), dtype=np.float32)}
    assert len(explainer.explain(several)) == 2


def test_agents_that_are_none_are_refused(zipped: Path) -> None:
    with pytest.raises(TypeError, match=r"load it first with tpd.load_agent\("):
        tpd.Explainer(str(zipped), env="CartPole-v1")
    with pytest.raises(TypeError, match=r"agent: expected .* got int"):
        tpd.Explainer(5, env="CartPole-v1")
    with pytest.raises(ValueError, match="env: pass the environment of the agent"):
        tpd.load_agent(zipped)


def test_the_folder_of_an_rl_zoo_names_its_environment(zipped: Path, tmp_path: Path) -> None:
    parameters = tmp_path / "CartPole-v1"
    parameters.mkdir()
    (tmp_path / "CartPole-v1.zip").write_bytes(zipped.read_bytes())
    (parameters / "args.yml").write_text("env: CartPole-v1\n")
    (parameters / "config.yml").write_text("normalize: false\n")
    agent = tpd.load_agent(tmp_path)
    assert agent.env.id == "CartPole-v1"
    assert agent.env.name_of_action(0) == "push left"
    with pytest.raises(ValueError, match=f"it has no zip of an agent; did you mean .*{tmp_path.name}"):
        tpd.load_agent(tmp_path.parent)
    assert tpd.Explainer(agent).play(seeds=[0])[0].seed == 0
    (parameters / "config.yml").write_text("env_wrapper: rl_zoo3.wrappers.HistoryWrapper\n")
    with pytest.raises(ValueError, match=r"HistoryWrapper.*pass as env a function"):
        tpd.load_agent(tmp_path)
    own = tpd.load_agent(tmp_path, env=lambda: gym.make("CartPole-v1"))
    assert len(own.policy.action(np.zeros((3, 4), dtype=np.float32))) == 3


# Places


def test_it_works_inside_a_hydra_application(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("horizon: 5\n")
    script = """
import hydra, numpy as np, tpd
from hydra.core.hydra_config import HydraConfig
@hydra.main(version_base="1.3", config_path=".", config_name="config")
def main(cfg):
    explainer = tpd.Explainer(lambda o: o[:, 2] > 0, env="CartPole-v1", horizon=cfg.horizon)
    explainer.learn(1000, overrides=["explainer=network", "explainer.fit_updates=5", "evaluation=none"])
    print(explainer.why(np.zeros(4)).fact.name, HydraConfig.get().job.name)
main()
"""
    (tmp_path / "app.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = fork_server().run(tmp_path / "app.py", [], tmp_path, environment, seconds=120)
    assert done.stdout.splitlines()[-1] == "push left app", done.stderr


def test_mlflow_is_used_only_if_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = ["explainer=network", "explainer.fit_updates=5", "evaluation=none", "recording.episodes=1"]
    tpd.Explainer(balance, env="CartPole-v1", horizon=5).learn(1000, overrides=settings)
    assert not list(tmp_path.iterdir())
    tracked = tpd.Explainer(balance, env="CartPole-v1", horizon=5, tracking="sqlite:///mlflow.db")
    tracked.learn(1000, overrides=[*settings, "overview=false"])
    assert (tmp_path / "mlflow.db").exists()
    (folder,) = (tmp_path / "outputs" / "python").iterdir()
    loaded = tpd.load(folder, trust=["tests"])
    observations = np.zeros((1, 4), dtype=np.float32)
    assert np.array_equal(loaded.explain(observations).expected, tracked.explain(observations).expected)


def test_progress_is_a_line_now_and_then_outside_of_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("tpd.show.progress.SECONDS_BETWEEN_LINES", 0.0)
    tpd.Explainer(balance, env="CartPole-v1").play(seeds=range(3))
    lines = capsys.readouterr().err.splitlines()
    assert lines[-1] == "episodes: 3 of 3"
    assert lines[0].startswith("episodes: 1 of 3")


@pytest.mark.parametrize("shown", ["answer", "explanation", "contrast", "quality"])
def test_records_draw_themselves(
    shown: str, explainer: tpd.Explainer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    answer = explainer.why(explainer.play(seeds=[0])[0][0])
    records: dict[str, Callable[[], Any]] = {
        "answer": answer.plot,
        "explanation": answer.fact.explanation.plot,
        "contrast": answer.contrast.plot,  # type: ignore[union-attr]
        "quality": explainer.quality.plot,
    }
    with caplog.at_level(logging.WARNING):
        figure = records[shown]()
        assert figure._repr_png_().startswith(b"\x89PNG")
    assert not caplog.records
    names = [name.removeprefix(FIRST) for name in explainer.outcomes.legend.names]
    if shown != "quality":
        labels = [text.get_text() for legend in figure.legends for text in legend.get_texts()]
        assert {*names} <= {*labels}


def test_answers_show_themselves_in_a_notebook() -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1", events={"<b>x": in_right_half}, horizon=5)
    answer = explainer.why(explainer.play(seeds=[0])[0][0])
    page = answer._repr_html_()
    assert "<b>x" not in page
    assert "&lt;b&gt;x" in page


def test_a_moment_after_the_end_is_refused() -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1", horizon=5)
    episode = explainer.play(seeds=[4])[0]
    world = gym.make("CartPole-v1").unwrapped
    observation, _ = world.reset(seed=4)
    actions = [*episode.transitions.action.tolist(), 0]
    for action in actions:
        observation, *_ = world.step(action)
    with pytest.raises(ValueError, match="terminates at step 24, so it cannot be continued"):
        explainer.why(tpd.Moment(4, np.array(actions), observation))


class Rain(gym.Env[Any, Any]):
    """Episodes of five steps; only steps tell whether it rained."""

    observation_space, action_space = spaces.Box(0, 5, (1,)), spaces.Discrete(2)
    metadata: dict[str, Any] = {"render_modes": []}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, dtype=np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        rained = bool(self.np_random.random() < 0.3)
        seen = np.full(1, self.time, dtype=np.float32)
        return seen, float(rained), self.time == 5, False, {"rained": rained}


def test_events_are_learned_although_resets_say_nothing_of_them() -> None:
    """All copies are reset at the same step, so that none of them has the entry."""
    explainer = tpd.Explainer(lambda o: np.zeros(len(o)), env=Rain, horizon=4)
    assert "rained" in explainer.outcomes.info_keys
    settings = ["explainer=network", "explainer.fit_updates=10", "evaluation=forecasts"]
    explainer.learn(1000, overrides=settings)
    assert explainer.quality is not None


def test_the_agent_may_be_given_again(tmp_path: Path) -> None:
    settings = ["explainer=network", "explainer.fit_updates=10", "evaluation=none"]
    explainer = tpd.Explainer(lambda o: o[:, 2] > 0, env="CartPole-v1", horizon=5)
    moment = explainer.play(seeds=[2])[0][3]
    explainer.learn(1000, overrides=settings).save(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"the agent of this run cannot be loaded.*agent=\.\.\.\)"):
        tpd.load(tmp_path / "saved")
    loaded = tpd.load(tmp_path / "saved", agent=balance)
    assert loaded.why(moment).text == explainer.why(moment).text
    assert (tmp_path / "saved" / "episodes.npz").exists()


def test_a_model_knows_its_environment_and_hydra_stays_as_it_was() -> None:
    model = PPO("MlpPolicy", "CartPole-v1", seed=0, device="cpu", n_steps=64)
    with hydra.initialize(version_base="1.3", config_path=None):
        before = GlobalHydra.instance().hydra
        explainer = tpd.Explainer(model, horizon=5)
        explainer.learn(1000, overrides=["explainer=network", "explainer.fit_updates=5", "evaluation=none"])
        assert GlobalHydra.instance().hydra is before
    assert explainer.env.id == "CartPole-v1"


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: tpd.Explainer(balance, "CartPole-v1", [in_right_half]),  # type: ignore[list-item]
            "pass each function with a name",
        ),
        (lambda: tpd.Explainer(balance, "CartPole-v1", in_right_half), "pass each function with a name"),  # type: ignore[arg-type]
        (lambda: tpd.Explainer("agent.zip"), r"load it first with tpd.load_agent\('agent.zip'"),
        (lambda: _played().learn(300, overrides="explainer=netwrk"), r"did you mean network\?"),
        (lambda: tpd.Explainer(_of_one, "CartPole-v1").play([0]), "it must accept a batch"),
        (
            lambda: tpd.Explainer(balance, "CartPole-v1", {"x": lambda t: t.info["x"]}).play([0]),
            "list the entries of info that it reads",
        ),
        (lambda: _played().play([0])[0][999], "the episode has 41 steps"),
        (lambda: _played().why(_played().play([0])[0]), "pass a moment of the episode"),
        (
            lambda: _played().why(np.zeros(3)),
            r"must be an array of shape \(4,\), got an array of shape \(3,\);",
        ),
        (lambda: _played().why(_played().play([0])), r"for example episodes\[0\]\[10\]"),
        (lambda: _played().why({"position": np.zeros(4)}), r"of shape \(4,\), got a dict;"),
        (lambda: _played().why([[0], [0, 1]]), r"of shape \(4,\), got no array;"),
        (lambda: _played().play([0])[1], "there is no episode 1; the episodes are 0 to 0"),
        (lambda: _played().quality.plot(), r"nothing to plot: nothing is learned yet: call learn\(\)"),
        (
            lambda: _played().why(tpd.Moment(0, np.array([2]), np.zeros(2))),
            "does not fit CartPole-v1: it has other observations or actions",
        ),
        (
            lambda: _played().why(tpd.Moment(0, np.array([2]), np.zeros(4))),
            "does not fit CartPole-v1: it has other observations or actions",
        ),
        (
            lambda: tpd.Explainer(balance, "CartPole-v1", {"reward": in_right_half}),
            "'reward' is reserved for the reward",
        ),
    ],
)
def test_errors_name_the_next_step(ask: Callable[[], object], message: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError), match=message):
        ask()


def _of_one(observation: Array) -> int:
    return 1 if observation > 0 else 0


def _played() -> tpd.Explainer:
    return tpd.Explainer(balance, env="CartPole-v1", horizon=5)


def test_a_return_far_below_the_expected_one_is_said(caplog: pytest.LogCaptureFixture) -> None:
    explainer = tpd.Explainer(balance, env="CartPole-v1")
    explainer._trainer.expected_return = ExpectedReturn(500.0, "somebody")  # type: ignore[attr-defined]
    explainer.play(seeds=range(6))
    assert "falls short of its expected return" in caplog.text


@pytest.mark.parametrize(
    ("torque", "foil"), [(0.0, 2.0), (0.1, -2.0), (-0.1, 2.0), (0.5, -0.5)], ids=["middle", "+", "-", "far"]
)
def test_an_action_near_the_middle_has_a_foil_that_differs(torque: float, foil: float) -> None:
    explainer = tpd.Explainer(lambda o: np.full((len(o), 1), torque), env="Pendulum-v1", horizon=4)
    answer = explainer.why(explainer.play(seeds=[0], steps=5)[0][2])
    assert answer.foil is not None
    assert answer.foil.explanation.actions.tolist() == [[foil]]


def test_names_are_not_interpolated(zipped: Path, tmp_path: Path) -> None:
    folder = tmp_path / "x${oc.env:HOME}"
    folder.mkdir()
    (folder / "CartPole-v1.zip").write_bytes(zipped.read_bytes())
    (folder / "config.yml").write_text("normalize: false\n")
    assert tpd.load_agent(folder).env.id == "CartPole-v1"
    for name in ("${oc.env:HOME}.zip", "${", "???"):
        with pytest.raises(ValueError, match=re.escape(f"{name}: there is no such file")):
            tpd.load_agent(name, env="CartPole-v1")


def test_a_result_that_no_run_writes_is_refused(saved: Path) -> None:
    (saved / "result.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"result\.txt"):
        tpd.load(saved, trust=["tests"])
    (saved / "result.txt").write_bytes(b" " * (2**20 + 1))
    with pytest.raises(ValueError, match=r"result\.txt"):
        tpd.load(saved, trust=["tests"])


@pytest.mark.parametrize("inner", [None, [1], {"kind": "mixture"}, {"kind": "model"}])
def test_a_mixture_without_a_network_is_refused(inner: Any, saved: Path) -> None:
    path = saved / "explainer" / "explainer.json"
    description = json.loads(path.read_text())
    path.write_text(json.dumps({**description, "network": {"kind": "mixture", "network": inner}}))
    with pytest.raises(ValueError, match=r"explainer\.json: the mixture has no network"):
        tpd.load(saved, trust=["tests"])


def test_a_class_is_no_mask_function(saved: Path) -> None:
    path = saved / "explainer" / "run.json"
    about = json.loads(path.read_text())
    about["env"]["mask_function"] = {"name": "tpd.core.outcomes:OutcomeSet", "arguments": {}}
    path.write_text(json.dumps(about))
    with pytest.raises(ValueError, match="must be a function, got a class"):
        tpd.load(saved, trust=["tests"])


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("norm_obs", "no", "norm_obs must be true or false, got a value of type str"),
        ("norm_obs", 0, "norm_obs must be true or false, got a value of type int"),
        ("epsilon", float("inf"), "needs epsilon >= 0 and clip_obs > 0"),
        ("clip_obs", 0.0, "needs epsilon >= 0 and clip_obs > 0"),
    ],
)
def test_statistics_that_no_vec_normalize_has_are_refused(
    name: str, value: Any, message: str, zipped: Path, tmp_path: Path
) -> None:
    world = VecNormalize(DummyVecEnv([lambda: gym.make("CartPole-v1")]))
    setattr(world, name, value)
    world.save(str(tmp_path / "statistics.pkl"))
    with pytest.raises(ValueError, match=message):
        tpd.load_agent(zipped, env="CartPole-v1", vec_normalize=tmp_path / "statistics.pkl")


def test_an_agent_of_another_environment_is_refused(zipped: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent = tpd.load_agent(zipped, env="CartPole-v1")
    with pytest.raises(ValueError, match="loaded for CartPole-v1, but is explained in Acrobot-v1"):
        tpd.Explainer(agent, env="Acrobot-v1")
    assert not caplog.records
    with pytest.warns(DeprecationWarning, match="CartPole-v0"):
        tpd.Explainer(agent, env="CartPole-v0", events={"right": in_right_half})
    assert "loaded for CartPole-v1, but is explained in CartPole-v0" in caplog.text
    explained = tpd.Explainer(agent, env=lambda: gym.make("CartPole-v1"), events={"right": in_right_half})
    assert explained.env.registered_id == "CartPole-v1"


def test_another_environment_than_the_stored_one_is_refused(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also one with the same spaces."""
    other = "HeavyPole-v0"
    gym.register(other, entry_point="gymnasium.envs.classic_control.cartpole:CartPoleEnv")
    try:
        with pytest.raises(ValueError, match="the run is about CartPole-v1, but env is HeavyPole-v0"):
            tpd.load(saved, env=other, trust=["tests"])
    finally:
        del gym.registry[other]
    tpd.load(saved, env="CartPole-v1", trust=["tests"])
    assert not caplog.records


def test_the_quality_of_what_was_loaded_can_be_drawn(saved: Path, tmp_path: Path) -> None:
    tpd.load(saved, trust=["tests"]).save(tmp_path / "second")
    loaded = tpd.load(tmp_path / "second", trust=["tests"])
    loaded.quality.plot().savefig(tmp_path / "again.png")
    drawn, again = saved / "plots" / "reliability.png", tmp_path / "again.png"
    first, second = (np.asarray(Image.open(path).convert("RGB")) for path in (drawn, again))
    assert first.std() > 0
    assert np.array_equal(first, second)


def test_beside_given_events_the_reward_is_one_outcome_and_that_is_said() -> None:
    (note,) = tpd.Explainer(balance, env="CartPole-v1", events={"right": in_right_half}).notes
    assert "the reward is one outcome" in note
    events = [tpd.component("time", lambda t: np.ones(len(t.reward)), 0, 1, weight=1.0)]
    assert not tpd.Explainer(balance, env="CartPole-v1", events=events).notes


def test_a_time_limit_within_the_horizon_is_said() -> None:
    def limited() -> gym.Env[Any, Any]:
        return gym.make("CartPole-v1", max_episode_steps=15)

    explainer = tpd.Explainer(balance, env=limited, events={"right": in_right_half}, horizon=8)
    episode = explainer.play(seeds=[0])[0]
    assert len(episode) == 15
    assert not explainer.env.drawable  # the function takes no render_mode
    late, early = explainer.why(episode[10]), explainer.why(episode[7])
    said = "the time limit of 15 steps ends the episode after step 4"
    assert any(remark.startswith(said) for remark in late.remarks)
    assert said in late.text
    assert not any("time limit" in remark for remark in early.remarks)


def test_a_discount_is_named(zipped: Path) -> None:
    explainer = tpd.Explainer(tpd.load_agent(zipped, env="CartPole-v1"), horizon=5)
    answer = explainer.why(explainer.play(seeds=[0])[0][0])
    assert "returns are discounted by 0.99 a step" in answer.text


def test_torch_works_with_one_thread_and_then_as_before() -> None:
    seen = set[int]()

    def watching(observations: Array) -> BoolArray:
        seen.add(torch.get_num_threads())
        return balance(observations)

    explainer = tpd.Explainer(watching, env="CartPole-v1", events={"right": in_right_half}, horizon=5)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    seen.clear()
    try:
        explainer.why(explainer.play(seeds=[0])[0][3])
        explainer.learn(300, overrides=[*QUICK[:2], "evaluation=none"], progress=False)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
    assert seen == {1}
