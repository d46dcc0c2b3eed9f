"""A learned model: its rollouts come to the exact expectations, and keep the laws of what is predicted."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from scipy.stats import norm

from tests.support.networks import Restless, collected
from tpd.core.outcomes import OutcomeSet, component, event
from tpd.core.types import (
    Array,
    BoolArray,
    FittingLearner,
    FloatArray,
    Learner,
    Policy,
    Resumable,
    Transitions,
)
from tpd.envs import Environment
from tpd.policies.function import FunctionPolicy
from tpd.predictors.episode_split import HOLD_OUT, EpisodeSplit
from tpd.predictors.explainer import Explainer
from tpd.predictors.model.learner import LearnedModel
from tpd.predictors.model.predictor import ModelPredictor
from tpd.store import explainers

HORIZON = 8
SLOPE, PUSH, NOISE, STOP, LEAST = 0.9, 0.3, 0.2, 0.05, -0.1


class Drift(gym.Env[Any, Any]):
    """A number that shrinks, is pushed by the action and by noise; a lamp shows whether it is positive."""

    observation_space = spaces.Box(-10, 10, (2,))
    action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = float(self.np_random.uniform(-1, 1))
        return self._seen(), {"place": self.place}

    def step(self, action: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        moved = SLOPE * self.place + PUSH * float(action[0])
        self.place = moved + NOISE * float(self.np_random.normal())
        stops = bool(self.np_random.random() < STOP)
        return self._seen(), -5.0 if stops else self.place, stops, False, {"place": self.place}

    def _seen(self) -> FloatArray:
        return np.array([self.place, self.place > 0], dtype=np.float32)


gym.register(id="Drifting-v0", entry_point="tests.predictors.test_model:Drift", max_episode_steps=50)
ENV = Environment("Drifting-v0")


def back(observations: Array) -> Array:
    return np.asarray(-0.5 * observations[:, :1])


POLICY = FunctionPolicy(back, 0.9, ENV.action_space)


def right(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, 0] > LEAST)


def stopped(t: Transitions) -> BoolArray:
    return np.asarray(t.terminated & (t.reward <= -5))


def outcomes() -> OutcomeSet:
    """Claims that hold of the world, and of what a model makes of it only nearly."""
    return OutcomeSet(
        [
            event("right", right),
            event("lit", lambda t: t.next_observation[:, 1] == 1),
            event("stopped", stopped, reward=-5.0),
            component("place", lambda t: np.where(t.terminated, 0, t.next_observation[:, 0]), -10, 10),
        ],
        accounts_for_reward=True,
        first=["right", "stopped"],
    )


def model(policy: Policy = POLICY, explained: OutcomeSet | None = None, **settings: Any) -> LearnedModel:
    usual: dict[str, Any] = {
        "horizon": HORIZON,
        "members": 2,
        "hidden": [32],
        "particles": 200,
        "learning_rate": 3e-3,
        "batch_size": 256,
        "fit_updates": 600,
        "replay_size": 100_000,
        "device": "cpu",
        "seed": 0,
    }
    return LearnedModel(settings.pop("env", ENV), policy, explained or outcomes(), **(usual | settings))


@cache
def transitions() -> Transitions:
    return collected(ENV, POLICY, 20_000)


@cache
def fitted() -> LearnedModel:
    learner = model()
    learner.update(transitions())
    learner.fit()
    return learner


PLACES = np.linspace(-0.8, 0.8, 5)
PAIRS = (
    np.stack([PLACES, PLACES > 0], axis=1).astype(np.float32),
    np.linspace(1, -1, 5, dtype=np.float32)[:, None],
)


def exact() -> tuple[FloatArray, FloatArray]:
    """[pair, horizon] both: probability of having moved on to the right, and the expected place."""
    mean = SLOPE * PLACES + PUSH * PAIRS[1][:, 0]
    means, variances = [mean], [NOISE**2]
    for _ in range(HORIZON - 1):
        means.append((SLOPE - 0.5 * PUSH) * means[-1])
        variances.append((SLOPE - 0.5 * PUSH) ** 2 * variances[-1] + NOISE**2)
    running = (1 - STOP) ** np.arange(HORIZON)
    place = np.stack(means, axis=1)
    return running * norm.sf((LEAST - place) / np.sqrt(variances)), running * (1 - STOP) * place


def test_the_mean_trajectory_has_no_chance_in_it() -> None:
    """The number goes where it is expected, and what is less likely than not never happens."""
    sampled = fitted().solved()
    spaces_of_both = sampled.observation_space, sampled.action_space
    members = sampled.model.members
    mean = ModelPredictor(
        sampled.model, sampled.tried, *spaces_of_both, horizon=HORIZON, particles=members, mean=True
    )
    predicted = mean.completed(POLICY, outcomes()).predict(*PAIRS)
    names, running = outcomes().legend.names, (1 - STOP) ** np.arange(1, HORIZON + 1)
    np.testing.assert_allclose(predicted[:, :, names.index("place")], exact()[1] / running, atol=0.08)
    assert not predicted[:, :, names.index("stopped")].any()
    assert sampled.predict(*PAIRS)[:, :, names.index("stopped")].all()
    assert np.isin(predicted[:, :, names.index("right")] * members, [0, 1, 2]).all()


def test_rollouts_come_to_the_exact_expectations() -> None:
    predicted = fitted().predict(*PAIRS)
    likely, place = exact()
    running = (1 - STOP) ** np.arange(HORIZON)
    names = outcomes().legend.names
    np.testing.assert_allclose(predicted[:, :, names.index("right")], likely, atol=0.06)
    np.testing.assert_allclose(predicted[:, :, names.index("place")], place, atol=0.06)
    for ending in (names.index("stopped"), names.index("first stopped"), -1):
        np.testing.assert_allclose(predicted[:, :, ending] - STOP * running, 0, atol=0.03)
    assert np.abs(predicted[:, :, 0] - likely[::-1]).max() > 0.3  # of other pairs it is not true


def test_a_lamp_is_on_or_off() -> None:
    """A number of two values is simulated as one of them: events can ask for it exactly."""
    predicted, likely = fitted().predict(*PAIRS), exact()[0]
    assert (predicted[:, :, 1] > 0.5 * likely - 0.2).all()
    assert (predicted[:, 2:, 1] > 0.1).all()


def test_first_occurrences_agree_with_the_event() -> None:
    predicted = fitted().predict(*PAIRS).astype(np.float64)
    for at, first in ((0, 4), (2, 5)):
        by = np.cumsum(predicted[:, :, first], axis=1)
        assert (predicted[:, :, first] <= predicted[:, :, at] + 1e-6).all()
        assert (predicted[:, :, at] <= by + 1e-6).all()
        assert (by <= 1 + 1e-6).all()


def test_an_answer_does_not_depend_on_what_else_is_asked() -> None:
    together = fitted().predict(*PAIRS)
    alone = np.concatenate([fitted().predict(PAIRS[0][[row]], PAIRS[1][[row]]) for row in range(5)])
    np.testing.assert_allclose(together, alone, atol=1e-5)
    restless = fitted().solved().completed(Restless(), outcomes())
    together = restless.predict(*PAIRS)
    alone = np.concatenate([restless.predict(PAIRS[0][[row]], PAIRS[1][[row]]) for row in range(5)])
    assert (together == alone).all()


def test_what_lies_nowhere_near_the_data_has_no_support() -> None:
    far = PAIRS[0].copy()
    far[0, 0] = 100
    assert (fitted().support(far, PAIRS[1]) == [0, *[20_000] * 4]).all()
    assert np.isfinite(fitted().predict(far, PAIRS[1])).all()


def test_a_model_is_a_learner_that_fits_and_resumes() -> None:
    assert isinstance(fitted(), Learner)
    assert isinstance(fitted(), FittingLearner)
    assert isinstance(fitted(), Resumable)


def test_a_fit_that_was_put_down_goes_on_bit_for_bit() -> None:
    whole, first, second = (model(fit_updates=40, particles=10) for _ in range(3))
    batches = [transitions()[:3000], transitions()[3000:5000]]
    for learner in (whole, first):
        learner.update(batches[0])
    second.restore(first.state())
    for learner in (whole, second):
        learner.update(batches[1])
    whole.fit()
    second.fit(at_most=15)
    third = model(fit_updates=40, particles=10)
    third.restore(second.state())
    third.fit()
    assert whole.updates == third.updates == 40
    assert (whole.predict(*PAIRS) == third.predict(*PAIRS)).all()
    assert (whole.predict(*PAIRS) != first.predict(*PAIRS)).any()


def test_saved_and_loaded_bit_for_bit_once_it_has_policy_and_outcomes(tmp_path: Path) -> None:
    explained = outcomes()
    explainers.save(Explainer(fitted(), POLICY, explained.legend), ENV, tmp_path)
    loaded = explainers.load(tmp_path).predictor
    with pytest.raises(ValueError, match="needs the policy of the run"):
        loaded.predict(*PAIRS)
    completed = loaded.completed(POLICY, explained)  # type: ignore[attr-defined]
    assert (completed.predict(*PAIRS) == fitted().predict(*PAIRS)).all()
    assert (completed.support(*PAIRS) == fitted().support(*PAIRS)).all()


def test_events_that_read_info_are_refused_by_name() -> None:
    reads = OutcomeSet([event("far", lambda t: t.info["place"] > 1, info_keys=["place"])])
    with pytest.raises(TypeError, match=r"outcome 'far' reads info\['place'\]"):
        model(explained=reads)


def test_numbered_observations_are_refused() -> None:
    env = Environment("FrozenLake-v1")
    with pytest.raises(TypeError, match="FrozenLake-v1 has Discrete"):
        model(env=env, explained=OutcomeSet([event("end", lambda t: t.terminated)]))


def test_particles_are_shared_evenly_by_the_members() -> None:
    with pytest.raises(ValueError, match="particles must be a multiple of the 2 ensemble members, got 5"):
        model(particles=5)


class Counting:
    """Acts by its hidden state, which counts the steps."""

    discount, version = 0.9, 0

    def action(self, observations: Array) -> Array:
        return np.asarray(np.where(observations[:, -1:] % 2 == 0, -1, 1), dtype=np.float32)

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        return self.action(observations)

    def action_values(self, observations: Array) -> None:
        return None

    def start(self, count: int) -> FloatArray:
        return np.zeros((count, 1), dtype=np.float32)

    def advance(self, observations: Array) -> FloatArray:
        return np.asarray(observations[:, -1:] + 1)


def test_the_hidden_state_is_advanced_by_the_policy() -> None:
    pushed = OutcomeSet([event("pushed", lambda t: t.action[:, 0] > 0)])
    learner = model(Counting(), pushed, fit_updates=5)
    learner.update(replace(collected(ENV, Counting(), 2000), own=None))
    learner.fit()
    start = np.array([[0.3, 1.0, 0.0]], dtype=np.float32)
    predicted = learner.predict(start, Counting().action(start))[0]
    running = 1 - np.append(0, np.cumsum(predicted[:-1, -1]))
    np.testing.assert_allclose(predicted[:, 0], running * (np.arange(HORIZON) % 2), atol=1e-5)


def test_whole_episodes_are_held_out_however_the_batches_are_cut() -> None:
    steps = transitions()
    together = EpisodeSplit().held_out(steps)
    cut, split = [], EpisodeSplit()
    for start in range(0, len(steps), 777):
        cut.append(split.held_out(steps[start : start + 777]))
    assert (np.concatenate(cut) == together).all()
    assert steps.stream is not None
    for stream in np.unique(steps.stream):
        mine = steps.stream == stream
        ended = (steps.terminated | steps.truncated)[mine]
        inside = ~ended[:-1]
        assert (together[mine][1:] == together[mine][:-1])[inside].all()
    assert 0.5 / HOLD_OUT < together.mean() < 2 / HOLD_OUT
