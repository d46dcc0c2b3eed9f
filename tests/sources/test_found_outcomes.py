"""Outcomes that are found in environments by trying a policy out."""

import functools
import logging
from collections.abc import Mapping
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.box2d.lunar_lander import heuristic

from tpd.core.outcomes import OutcomeError
from tpd.core.seeding import generator
from tpd.core.types import Array, Policy, Transitions, concatenate
from tpd.envs import Environment
from tpd.envs.events.found import ended_with, ended_without
from tpd.policies.function import function_policy
from tpd.sources import trials
from tpd.sources.collection import collect, play
from tpd.sources.exploration import Exploration
from tpd.sources.found_outcomes import FoundOutcomes, find_outcomes, found_outcomes
from tpd.sources.reward_patterns import find_terms, reward_thresholds, roundest
from tpd.store.run_descriptions import describe_outcomes


class Errand(gym.Env[Any, Any]):
    """A walk to either end of a street. Its info can be made to misbehave."""

    observation_space = gym.spaces.Box(-5, 5, (1,))
    action_space: gym.Space[Any]

    def __init__(
        self,
        fault: str = "",
        endless: bool = False,
        continuous: bool = False,
        render_mode: str | None = None,
    ) -> None:
        self.action_space = gym.spaces.Box(-1, 1, (1,)) if continuous else gym.spaces.Discrete(2)
        self.fault, self.endless, self.render_mode = fault, endless, render_mode

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.place, self.time = 0, 0
        return self._look(), {"reward_way": 0} if self.fault == "kind" else {}

    def _look(self) -> Array:
        return np.array([self.place], dtype=np.float32)

    def step(self, action: Any) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.place += 1 if self.np_random.random() < (0.5 if np.any(action) else 0.4) else -1
        self.time += 1
        way, cost = 0.3 * self.place, float(self.np_random.uniform(0, 2))
        ends = abs(self.place) == 4 and not self.endless
        self.place = max(-4, min(4, self.place))
        info = {
            "reward_way": way,
            "energy_cost": np.float32(cost),
            "place": self.place,
            "is_success": bool(self.place == 4 and ends),
            "at_home": np.bool_(self.place == 0),
            "crashed": 0.0,
            "TimeLimit.truncated": bool(self.time % 2),
            "action_mask": np.ones(2),
            "first_half": self.time < 3,
        }
        if self.fault == "missing" and self.time == 3:
            del info["reward_way"]
        extra = 0.01 if self.fault == "rare bonus" and self.place == 3 else 0.0
        return self._look(), way - float(np.float32(cost)) + extra, ends, False, info


gym.register("Errand-v0", f"{__name__}:Errand", max_episode_steps=60)


def still(env: Environment) -> Policy:
    """Does always the same."""
    space = env.action_space
    return function_policy(lambda seen: np.zeros((len(seen), *(space.shape or ()))), 0.99, space)


@functools.cache
def errand(fault: str = "", endless: bool = False, continuous: bool = False) -> FoundOutcomes:
    env = Environment("Errand-v0", {"fault": fault, "endless": endless, "continuous": continuous})
    return find_outcomes(env, still(env))


def described(found: FoundOutcomes, start: str) -> str:
    """The one note that starts so."""
    (note,) = [note for note in found.notes if note.startswith(start)]
    return note


def collected(env: Environment, found: FoundOutcomes) -> Transitions:
    batches = collect(
        env,
        still(env),
        generator(1, "test"),
        steps=900,
        exploration=Exploration(0.5),
        num_envs=3,
        info_keys=found.outcomes.info_keys,
    )
    return concatenate(list(batches))


def test_on_hopper_the_terms_of_the_reward_and_the_fall_are_found() -> None:
    env = Environment("Hopper-v5")
    found = find_outcomes(env, still(env))
    names = found.outcomes.legend.names
    assert names[3:] == (
        *("forward reward", "ctrl reward", "survive reward"),
        *("terminates", "first terminates"),
    )
    assert found.outcomes.legend.weights[3:6] == (1, 1, 1)
    sum_of_terms = "reward = reward_forward + reward_ctrl + reward_survive, checked on 6,000 transitions"
    assert described(found, "reward").startswith(sum_of_terms)
    steps = collected(env, found)
    observed = found.outcomes.observe(steps).outcome
    np.testing.assert_allclose(observed[:, 3:6].sum(axis=1), steps.reward, rtol=1e-5, atol=1e-5)
    assert (observed[:, names.index("first terminates")] == steps.terminated).all()
    assert steps.terminated.any()


def test_on_cart_pole_nothing_is_invented() -> None:
    env = Environment("CartPole-v1", action_names=["left", "right"])
    found = find_outcomes(env, still(env))
    assert found.outcomes.legend.names == ("action: left", "action: right", "reward", "first terminates")
    assert found.outcomes.legend.partition == ("action: left", "action: right")
    assert found.outcomes.info_keys == ()
    assert len(found.notes) == 2


def test_on_lunar_lander_the_last_reward_tells_landing_from_crash() -> None:
    env = Environment("LunarLander-v3")
    one = env.make()

    def landing_well(seen: Array) -> Array:
        return np.array([heuristic(one, row) for row in seen])  # type: ignore[no-untyped-call]

    policy = function_policy(landing_well, 0.99, env.action_space)
    found = find_outcomes(env, policy)
    crash, landing = found.outcomes.outcomes[-2:]
    assert (crash.name, landing.name) == ("first ends with reward below 0", "first ends with reward above 0")
    assert described(found, "the episode terminates in 2 ways, distinguished by the reward of the last step")
    assert found.outcomes.partition
    steps = play(env, policy, generator(5, "test"), episodes=4).transitions
    landed = steps.terminated & (steps.reward == 100)
    assert landed.any()
    assert (found.outcomes.observe(steps).outcome[:, -2] == landed).all()  # the last is termination


def test_flags_and_costs_of_info() -> None:
    found = errand()
    names = found.outcomes.legend.names
    assert names == (
        *("action: 0", "action: 1", "way reward", "energy cost"),
        *("first success", "first at home", "first first_half", "first terminates otherwise"),
    )
    assert found.outcomes.legend.weights[2:4] == (1, -1)
    assert found.outcomes.info_keys == ("at_home", "energy_cost", "first_half", "is_success", "reward_way")
    assert described(found, "reward = reward_way - energy_cost, checked on 6,000 transitions")
    assert "true in" in described(found, "event 'success': info['is_success']")
    assert described(found, "info['crashed'] is not an event: it was never true")


def test_the_other_way_to_terminate_is_without_the_flag() -> None:
    env, found = Environment("Errand-v0"), errand()
    steps = collected(env, found)
    outcome = found.outcomes.observe(steps).outcome
    success, otherwise = outcome[:, 4], outcome[:, -2]
    assert (success + otherwise == steps.terminated).all()
    assert success.any()
    assert otherwise.any()


def test_next_to_actions_made_of_numbers_events_are_asked_both_ways() -> None:
    found = errand(continuous=True)
    names = found.outcomes.legend.names
    assert not found.outcomes.partition
    assert {"success", "first success", "terminates otherwise", "first terminates otherwise"} <= {*names}


def test_a_flag_that_is_up_most_of_the_time_is_no_first_occurrence() -> None:
    """It cannot be part of a partition of next actions, so that there is none."""
    env = Environment("Errand-v0", max_episode_steps=3)
    found = find_outcomes(env, still(env))
    names = found.outcomes.legend.names
    assert "first_half" in names
    assert "first first_half" not in names
    assert {"at home", "first at home"} <= {*names}
    assert not found.outcomes.partition


def test_where_nothing_terminates_there_is_no_such_event() -> None:
    found = errand(endless=True)
    assert not any("terminates" in name or "ends" in name for name in found.outcomes.legend.names)
    assert described(found, "no episode terminated in 6,000 transitions")
    assert described(found, "info['is_success'] is not an event: it was never true")


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("missing", "info['reward_way'] is missing or not a number in some steps, so it is not used"),
        ("kind", "info['reward_way'] is not always the same kind of number, so it is not used"),
    ],
)
def test_what_cannot_be_collected_is_not_used(fault: str, reason: str) -> None:
    found = errand(fault=fault)
    assert reason in found.notes
    assert "reward_way" not in found.outcomes.info_keys
    assert "reward" in found.outcomes.legend.names


def test_terms_must_add_up_on_every_transition() -> None:
    found = errand(fault="rare bonus")
    assert "reward" in found.outcomes.legend.names
    assert "way reward" not in found.outcomes.legend.names
    assert "no numbers in info add up to it" in described(found, "the reward is one outcome")


def test_what_was_found_is_stored_by_name() -> None:
    env, found = Environment("Errand-v0"), errand()
    steps = collected(env, found)
    again = describe_outcomes(found.outcomes).make(())
    assert again.legend == found.outcomes.legend
    assert again.info_keys == found.outcomes.info_keys
    np.testing.assert_array_equal(again.observe(steps).outcome, found.outcomes.observe(steps).outcome)


def test_flags_of_numpy_are_collected_as_what_they_are() -> None:
    env, found = Environment("Errand-v0"), errand()
    assert collected(env, found).info["at_home"].dtype == np.bool_


def test_a_claim_that_was_found_is_checked_later_too() -> None:
    found = errand()
    steps = collected(Environment("Errand-v0", {"fault": "rare bonus"}), found)
    with pytest.raises(OutcomeError, match="do not account for the reward"):
        found.outcomes.observe(steps)


def test_the_same_is_found_again_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    env = Environment("Errand-v0")
    with caplog.at_level(logging.INFO):
        outcomes = found_outcomes(env, still(env))
    found = errand()
    assert outcomes.legend == found.outcomes.legend
    assert [record.getMessage() for record in caplog.records] == [
        f"outcomes of Errand-v0: {note}" for note in found.notes
    ]


def test_slow_environments_are_left_early_and_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "SECONDS", 0.05)
    env = Environment("Errand-v0")
    assert described(find_outcomes(env, still(env)), "Errand-v0 is slow: only ")


@pytest.mark.parametrize(
    ("numbers", "reward", "terms"),
    [
        (
            {"reward_a": [1, 2, 5], "reward_b": [3, 1, 0], "reward": [4, 3, 5]},
            [4, 3, 5],
            {"reward_a", "reward_b"},
        ),
        ({"reward": [4, 3, 5], "x": [1, 0, 2]}, [4, 3, 5], {"reward"}),
        ({"x": [4, 3, 5], "y": [1, 0, 2]}, [3, 3, 3], set()),
        ({"prob": [1, 1, 1]}, [-1, -1, -1], set()),
        ({"x": [4, 3, 5], "y": [1, 0, 2]}, [3, 3, 3.5], set()),
        ({"x": [4, 3, 5], "y": [1, 0, 1]}, [3, 3, 4], {"x", "y"}),
    ],
)
def test_sums(numbers: Mapping[str, list[float]], reward: list[float], terms: set[str]) -> None:
    columns = {key: np.array(values) for key, values in numbers.items()}
    found = find_terms(columns, np.array(reward))
    assert found.keys() == terms
    if found:
        np.testing.assert_allclose(sum(found[key] * columns[key] for key in found), reward)


@pytest.mark.parametrize(
    ("last", "thresholds"),
    [
        ([-100, 100] * 3, [0]),
        ([-100, 0, 100] * 3, [-50, 50]),
        ([0, 1] * 3, [0.5]),
        ([-100, -100, -100, 100, 100], []),  # too few
        ([1.0] * 9, []),
        (np.linspace(-1, 3, 40), []),
        ([0.0, 0.1] * 5, []),  # as other rewards are
    ],
)
def test_ends_that_rewards_tell_apart(last: list[float], thresholds: list[float]) -> None:
    others = np.linspace(-0.3, 0.3, 100)
    assert reward_thresholds(np.array(last), others) == pytest.approx(thresholds)


def test_thresholds_are_round_numbers() -> None:
    assert roundest(-100, 0.37) == -50
    assert roundest(3, 1007) == 500
    assert roundest(0.1, 0.3) == pytest.approx(0.2)


def test_every_termination_is_of_one_kind() -> None:
    reward = np.array([-100.0, 0.0, 100.0, 5.0])
    blank, up = np.zeros(4), np.array([True, False, False, False])
    steps = Transitions(blank, blank, blank, reward, np.array([1, 1, 1, 0], np.bool_), up & False, {"up": up})
    kinds = [
        ended_with(steps, high=0.0),
        ended_with(steps, low=0.0, high=100.0),
        ended_with(steps, low=100.0),
    ]
    np.testing.assert_array_equal(np.sum(kinds, axis=0), steps.terminated)
    np.testing.assert_array_equal(ended_without(steps, ["up"]), [False, True, True, False])


def test_the_config_names_the_function(compose_config: Any) -> None:
    assert compose_config("outcomes=found").outcomes._target_ == f"{found_outcomes.__module__}.found_outcomes"
