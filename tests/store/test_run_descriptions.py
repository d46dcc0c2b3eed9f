"""What a run is about, as it is stored: made again as it was, and nothing of strangers is imported."""

import json
import re
import sys
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import TimeAwareObservation

from tests.support import Compose
from tests.support.doors import ABOUT, cases, read_run
from tests.support.good_files import MARKER, STRANGER, explained, lake
from tests.support.good_files import run as good_run
from tests.support.hostile_files import FUNCTION, about, with_keys
from tpd.core.outcomes import OutcomeSet, component, event
from tpd.core.types import Transitions
from tpd.envs import Environment
from tpd.envs.events.default import default_outcomes
from tpd.guards.files import blame, read_arrays, write_arrays
from tpd.run.parts import build
from tpd.run.results import save_explainer
from tpd.sources.episodes import Recorder
from tpd.store import explainers, run_descriptions, saved_runs
from tpd.store.descriptions import NamedFunction, UntrustedError, named, plain, validated, written
from tpd.store.recordings import save_recording
from tpd.store.run_descriptions import (
    AbsentEnvironment,
    EnvironmentDescription,
    OutcomesDescription,
    describe_env,
    describe_outcomes,
)

MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

gym.register(id="Strange-v0", entry_point="strange_world:Strange", max_episode_steps=9)

class Strange(CartPoleEnv):
    pass

def leans(t, by=0.1):
    return t.next_observation[:, 2] > by

def mask(observations):
    import numpy as np
    return np.ones((len(observations), 2), dtype=bool)

def going(observations):
    return (observations[:, 2] > 0).astype(int)
"""


@pytest.fixture
def strange_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module of a user's."""
    (tmp_path / "strange_world.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "strange_world", raising=False)
    return "strange_world"


def again(record: Any) -> Any:
    """The record as it is read from JSON."""
    return validated(type(record), json.loads(json.dumps(written(record))))


# Environments


@pytest.mark.parametrize(
    "env",
    [
        Environment("FuelTaxi-v0"),
        Environment("FrozenLake-v1", {"is_slippery": False, "desc": ["SF", "FG"]}),
        Environment("LunarLander-v3", {"gravity": -9.5, "continuous": True}, max_episode_steps=50),
        Environment(
            "CartPole-v1", action_names=("left", "right"), observation_names=("x", "v", "angle", "turning")
        ),
    ],
    ids=lambda env: env.id,
)
def test_an_environment_is_made_again_as_it_was(env: Environment) -> None:
    made = again(describe_env(env)).make()
    assert (made.id, made.kwargs, made.max_episode_steps) == (env.id, env.kwargs, env.max_episode_steps)
    assert tuple(made.action_names) == tuple(env.action_names)
    assert tuple(made.observation_names) == tuple(env.observation_names)
    worlds = env.make(), made.make()
    for world in worlds:
        world.action_space.seed(1)
    np.testing.assert_array_equal(*(world.reset(seed=3)[0] for world in worlds))
    for _ in range(20):
        one, other = (world.step(world.action_space.sample())[:4] for world in worlds)
        np.testing.assert_array_equal(one[0], other[0])
        assert one[1:] == other[1:]


def test_wrappers_are_made_again_if_they_are_trusted() -> None:
    env = Environment("CartPole-v1", wrappers=[partial(TimeAwareObservation, flatten=True)])
    described = again(describe_env(env))
    with pytest.raises(UntrustedError, match=r"env of this run: the module 'gymnasium.*trust=\[gymnasium\]"):
        described.make()
    assert described.make(["gymnasium"]).observation_space == env.observation_space


class OwnEnvironment(Environment):
    """Of a user's."""


@pytest.mark.parametrize(
    ("env", "reason"),
    [
        (Environment("CartPole-v1", {"render_fps": object()}), "render_fps=.* cannot be stored"),
        (Environment("CartPole-v1", wrappers=[lambda env: env]), "<lambda>"),
        (OwnEnvironment("CartPole-v1"), "OwnEnvironment cannot be stored"),
        (
            Environment("FrozenLake-v1", {"desc": ["F" * 200] * 200}),
            "kwargs: keyword arguments of environments are limited to 10000",
        ),
    ],
)
def test_an_environment_that_is_not_plain_says_why(env: Environment, reason: str) -> None:
    described = describe_env(env)
    assert isinstance(described, AbsentEnvironment)
    with pytest.raises(ValueError, match=f"the env of this run is not stored: .*{reason}"):
        again(described).make()


def test_a_window_of_the_users_is_not_stored() -> None:
    described = describe_env(
        Environment("CartPole-v1", {"render_mode": "human", "sutton_barto_reward": True})
    )
    assert isinstance(described, EnvironmentDescription)
    assert described.kwargs == {"sutton_barto_reward": True}


# Recorded episodes


def spoilt(array: Any, value: Any) -> Any:
    changed = array.copy()
    changed[:1] = value
    return changed


RECORDINGS = {
    "a state beyond the last": ("observation", lambda a: spoilt(a, 10**9)),
    "a state below the first": ("next_observation", lambda a: spoilt(a, -1)),
    "pictures for states": ("observation", lambda a: np.zeros((len(a), 50, 50), dtype=a.dtype)),
    "states of floats": ("observation", lambda a: a + 0.5),
    "an action beyond the last": ("action", lambda a: spoilt(a, 4)),
    "actions of vectors": ("action", lambda a: np.zeros((len(a), 2), dtype=a.dtype)),
    "no reward": ("reward", lambda a: spoilt(a.astype(float), np.nan)),
    "outcomes of 1e30": ("happened", lambda a: spoilt(a, 1e30)),
    "an outcome less": ("happened", lambda a: a[:, 1:]),
    "no valid action": ("masks", lambda a: a & False),
    "9 actions": ("masks", lambda a: np.ones((len(a), 9), dtype=bool)),
}


@pytest.mark.parametrize(("name", "spoil"), RECORDINGS.values(), ids=RECORDINGS)
def test_episodes_that_cannot_be_of_the_run_are_refused(name: str, spoil: Any, tmp_path: Path) -> None:
    good_run(tmp_path)
    env, path = lake(), tmp_path / saved_runs.EPISODES
    recording = Recorder(episodes=2, steps=3).record(env, explained().policy, default_outcomes(env))
    assert recording is not None
    save_recording(recording, path)
    read_run(tmp_path)  # the good one
    arrays = read_arrays(path)
    write_arrays(path, {**arrays, name: spoil(arrays[name])})
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: [^\n]+$"):
        read_run(tmp_path)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_action_values_that_are_no_numbers_are_refused(value: float, tmp_path: Path) -> None:
    good_run(tmp_path)
    path = tmp_path / saved_runs.EXPLAINER / explainers.AGENT
    arrays = read_arrays(path)
    for values, fine in ((-np.inf, True), (value, False)):
        write_arrays(path, {**arrays, "action_values": np.full(arrays["probabilities"].shape, values)})
        if fine:  # of actions that are not valid
            read_run(tmp_path)
            continue
        with pytest.raises(ValueError, match=r"agent\.npz: action_values\[0, 0\] must not be"):
            read_run(tmp_path)


# Outcomes


@pytest.mark.parametrize("name", ["lunar_lander", "fuel_taxi", "fuel_taxi_components", "pendulum", "default"])
def test_outcomes_are_made_again_as_they_were(name: str, compose_config: Compose) -> None:
    env = "fuel_taxi" if "fuel" in name else "lunar_lander" if name == "default" else name
    parts = build(compose_config(f"env={env}", f"outcomes={name}", *CHEAP))
    made = again(describe_outcomes(parts.outcomes)).make()
    assert made.legend == parts.outcomes.legend
    assert made.info_keys == parts.outcomes.info_keys
    steps = some_transitions(parts.env)
    for one, other in zip(parts.outcomes.observe(steps), made.observe(steps), strict=True):
        np.testing.assert_array_equal(one, other)


CHEAP = (
    "explainer=network",
    "evaluation=none",
    "training=agent",
    "policy=function",
    "policy.function={_target_: policies_of_a_user.left, _partial_: true}",
)


def some_transitions(env: Environment) -> Transitions:
    world = env.make()
    world.action_space.seed(0)
    seen = [world.reset(seed=0)[0]]
    rows = []
    for _ in range(60):
        action = world.action_space.sample()
        following, reward, terminated, truncated, _ = world.step(action)
        rows.append((seen[-1], action, following, float(reward), terminated, truncated))
        seen.append(world.reset()[0] if terminated or truncated else following)
    columns: list[Any] = [np.array(column) for column in zip(*rows, strict=True)]
    return Transitions(*columns)


def test_a_function_without_a_name_is_missed_only_when_it_is_asked_for() -> None:
    outcomes = OutcomeSet([event("odd", lambda t: t.reward > 0), component("size", abs, 0, 1)])  # type: ignore[arg-type]
    described = again(describe_outcomes(outcomes))
    assert [outcome.name for outcome in described.outcomes] == ["odd", "size"]
    with pytest.raises(ValueError, match="the functions of 'odd', 'size' are not stored"):
        described.make()


def took_first(t: Any, action: Any = 0) -> Any:
    return t.action == action


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda t: t, "is not defined at the top level of its module"),
        (partial(took_first, lake()), "has positional arguments"),
        (partial(took_first, action=object()), "cannot be stored"),
        (np.add, "is neither a function nor a class of a module"),
        (Environment("CartPole-v1").mask, "is neither a function nor a class of a module"),
    ],
)
def test_what_has_no_name_says_so(function: Any, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        named(function)


def test_a_name_finds_the_function_and_its_arguments() -> None:
    found = again(named(partial(partial(took_first, action=1), action=2)))
    assert found == NamedFunction(name=f"{__name__}:took_first", arguments={"action": 2})
    assert found.find([__name__]).keywords == {"action": 2}
    assert again(named(took_first)).find(["tests"]) is took_first
    with pytest.raises(UntrustedError, match=r"trust=\[tests\]"):
        found.find()


# Trust


def test_modules_are_imported_only_if_they_are_trusted(strange_world: str) -> None:
    described: EnvironmentDescription = validated(
        EnvironmentDescription, {"kind": "environment", "id": f"{strange_world}:Strange-v0"}
    )
    for trusted in ((), ("strange",), ("os",), ("strange_world.deeper",)):
        with pytest.raises(UntrustedError, match=r"module 'strange_world' .*trust=\[.*strange_world\]"):
            described.make(trusted)
        assert strange_world not in sys.modules
    spec = described.make([strange_world]).make().spec
    assert spec is not None
    assert spec.max_episode_steps == 9


def test_a_run_in_a_world_of_the_users_is_read_where_it_is_trusted(
    strange_world: str, tmp_path: Path, compose_config: Compose
) -> None:
    parts = build(
        compose_config(
            f"env.id={strange_world}:Strange-v0",
            f"+env.mask_function={{_target_: {strange_world}.mask, _partial_: true}}",
            "outcomes.partition=false",
            "outcomes.accounts_for_reward=false",
            "outcomes.first=[]",
            "outcomes.outcomes=[{_target_: tpd.core.outcomes.event, name: leans, function: "
            f"{{_target_: {strange_world}.leans, _partial_: true, by: 0.05}}}}]",
            "explainer=network",
            "explainer.hidden=[4]",
            "evaluation=none",
            "training=agent",
            "policy=function",
            f"policy.function={{_target_: {strange_world}.going, _partial_: true}}",
        )
    )
    save_explainer(parts, tmp_path)
    for name in (strange_world, "CartPole"):
        sys.modules.pop(name, None)
    gym.registry.pop("Strange-v0")
    with pytest.raises(UntrustedError, match=r"trust=\[strange_world\]"):
        saved_runs.read(tmp_path)
    assert strange_world not in sys.modules
    run = saved_runs.read(tmp_path, [strange_world])
    seen = np.array([run.env.observation_space.sample() for _ in range(5)])
    np.testing.assert_array_equal(run.explainer.policy.action(seen), (seen[:, 2] > 0).astype(int))
    assert run.outcomes().outcomes[0].function.keywords == {"by": 0.05}  # type: ignore[attr-defined]


HOSTILE = about(ABOUT)


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_description_imports_nothing(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_run(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    read_run(tmp_path)  # the good one
    HOSTILE[name](tmp_path)
    before = set(sys.modules)
    with pytest.raises(ValueError, match=r"run\.json|of this run") as refusal:
        read_run(tmp_path)
    assert "\n" not in str(refusal.value)
    assert not (tmp_path / MARKER).exists()
    assert not {module for module in set(sys.modules) - before if not module.startswith(("tpd", "gym"))}


def test_a_function_of_strangers_runs_only_when_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    good_run(tmp_path)
    (tmp_path / STRANGER).write_text("def landed(t, **_):\n    return t.terminated\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "stranger", raising=False)
    HOSTILE[FUNCTION](tmp_path)
    with pytest.raises(UntrustedError, match=r"the outcomes of this run: the module 'stranger'"):
        saved_runs.read(tmp_path).outcomes()
    assert "stranger" not in sys.modules
    assert saved_runs.read(tmp_path, ["stranger"]).outcomes().outcomes[0].function.__module__ == "stranger"
    del sys.modules["stranger"]


def test_the_doors_have_the_description() -> None:
    assert sum(case.door.file == ABOUT for case in cases()) > len(HOSTILE)


# Plain values


@pytest.mark.parametrize("value", [None, True, 3, -2.5, "word", [1, [2]], {"a": {"b": 0}}, (1, 2)])
def test_plain_values_pass(value: Any) -> None:
    assert plain(value) == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), 2**63, "${a}", {"_target_": "os"}, {1: 2}, set(), {"a": "${b}"}],
    ids=str,
)
def test_what_is_not_plain_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be stored"):
        plain([value])


def test_an_error_names_the_file_once(tmp_path: Path) -> None:
    good_run(tmp_path)
    with_keys(ABOUT, seed=-1)(tmp_path)
    complaint = f"{tmp_path / ABOUT}: seed: Input should be greater than or equal to 0, got '-1'"
    with pytest.raises(ValueError) as refusal, blame(tmp_path):  # noqa: PT011
        run_descriptions.read(tmp_path / saved_runs.EXPLAINER)
    assert str(refusal.value) == complaint


def test_default_outcomes_are_stored_as_what_they_made() -> None:
    described: OutcomesDescription = describe_outcomes(default_outcomes(Environment("CartPole-v1")))
    functions = [outcome.function for outcome in described.outcomes]
    assert all(isinstance(function, NamedFunction) for function in functions)
    assert functions[0] == NamedFunction(name="tpd.envs.events.default:took", arguments={"action": 0})
