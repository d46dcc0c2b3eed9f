"""Folders of RL-Zoo agents: what they say, what they hide, and what becomes of them on the command line."""

import shutil
from collections import OrderedDict
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import yaml
from gymnasium.wrappers import FlattenObservation, TimeAwareObservation
from sb3_contrib.common.wrappers import TimeFeatureWrapper
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_ext.agents import LoadedAgent
from sb3_ext.normalization import load_normalization
from sb3_ext.zoo import LARGEST_YAML, read_zoo_folder, zoo_agent
from tests.support import Compose
from tpd.envs import Environment
from tpd.run.parts import ConfigError, build
from tpd.store.descriptions import named
from tpd.store.fingerprints import fingerprint

AGENTS = Path(__file__).parents[3] / "shared" / "agents"
ID = "CartPole-v1"
TIME = "sb3_contrib.common.wrappers.TimeFeatureWrapper"
ARGS: dict[str, Any] = {
    "algo": "ppo",
    "env": ID,
    "env_kwargs": None,
    "gym_packages": [],
    "seed": 951484142,
    "uuid": False,
}
SETTINGS = {"ent_coef": 0.0, "n_envs": 8, "n_timesteps": 100000.0, "policy": "MlpPolicy"}
MAPPED = "++env.kwargs.sutton_barto_reward=true"


def zoo_text(values: dict[str, Any]) -> str:
    """As the zoo writes it."""
    return str(yaml.dump(OrderedDict(sorted(values.items()))))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Zips of two agents, one of them normalised with statistics beside it."""
    folder = tmp_path_factory.mktemp("trained")
    settings: dict[str, Any] = {"n_steps": 32, "batch_size": 32, "n_epochs": 1, "seed": 0, "device": "cpu"}
    PPO("MlpPolicy", ID, **settings).learn(32).save(folder / "plain.zip")
    envs = VecNormalize(DummyVecEnv([lambda: gym.make(ID)]))
    PPO("MlpPolicy", envs, **settings).learn(64).save(folder / "normalised.zip")
    envs.save(str(folder / "vecnormalize.pkl"))
    timed = DummyVecEnv([lambda: TimeFeatureWrapper(gym.make(ID))])
    PPO("MlpPolicy", timed, **settings).save(folder / "timed.zip")
    return folder


@pytest.fixture
def zoo(trained: Path, tmp_path: Path) -> Any:
    """Makes the folder of an agent as the zoo does, or with its files side by side."""

    def make(agent: str = "plain", *, flat: bool = False, args: Any = None, **config: Any) -> Path:
        folder = tmp_path / f"{ID}_1"
        inner = folder if flat else folder / ID
        inner.mkdir(parents=True)
        shutil.copy(trained / f"{agent}.zip", folder / f"{ID}.zip")
        if agent == "normalised":
            shutil.copy(trained / "vecnormalize.pkl", inner)
        (inner / "config.yml").write_text(zoo_text({**SETTINGS, **config}))
        (inner / "args.yml").write_text(zoo_text({**ARGS, **(args or {})}))
        return folder

    return make


def loaded(path: Path, env: Environment, **settings: Any) -> LoadedAgent:
    given = {"algorithm": None, "vec_normalize": None, "deterministic": True, "trust": False, **settings}
    return LoadedAgent(env, np.random.default_rng(0), path=str(path), **given)


# What a folder says


@pytest.mark.parametrize("flat", [False, True])
def test_a_folder_says_which_files_belong_together(zoo: Any, flat: bool) -> None:
    folder = zoo("normalised", flat=flat, normalize=True)
    inner = folder if flat else folder / ID
    assert (
        "!!python/object/apply:collections.OrderedDict\n- - - ent_coef\n"
        in (inner / "config.yml").read_text()
    )
    found = read_zoo_folder(folder)
    assert (found.zip, found.vec_normalize) == (folder / f"{ID}.zip", inner / "vecnormalize.pkl")
    assert (found.env_id, found.env_kwargs, found.wrappers, found.max_episode_steps) == (ID, {}, (), None)


def test_the_files_of_the_hub_lie_side_by_side(trained: Path, tmp_path: Path) -> None:
    folder = tmp_path / "models--sb3"
    folder.mkdir()
    shutil.copy(trained / "normalised.zip", folder / f"ppo-{ID}.zip")
    shutil.copy(trained / "vecnormalize.pkl", folder / "vec_normalize.pkl")
    shutil.copy(trained / "plain.zip", folder / "train_eval_metrics.zip")
    (folder / "config.yml").write_text(zoo_text({**SETTINGS, "normalize": True}))
    (folder / "args.yml").write_text(zoo_text(ARGS))
    found = read_zoo_folder(folder)
    assert (found.zip.name, found.env_id) == (f"ppo-{ID}.zip", ID)
    assert found.vec_normalize == folder / "vec_normalize.pkl"


def test_other_folders_are_none_of_the_zoo(zoo: Any, tmp_path: Path) -> None:
    folder = zoo()
    (tmp_path / "empty").mkdir()
    for other in (tmp_path / "empty", folder / ID, folder / f"{ID}.zip", tmp_path / "nowhere"):
        with pytest.raises(ValueError, match=r"not the folder of an RL-Zoo agent|no such folder"):
            read_zoo_folder(other)
    shutil.rmtree(folder / ID)
    with pytest.raises(ValueError, match=r"has no config.yml or args.yml"):
        read_zoo_folder(folder)


def test_the_zip_is_the_one_of_that_name_or_the_only_or_the_best_one(zoo: Any) -> None:
    folder = zoo()
    own, best, other = folder / f"{ID}.zip", folder / "best_model.zip", folder / "rl_model_100_steps.zip"
    shutil.copy(own, best)
    shutil.copy(own, other)
    assert read_zoo_folder(folder).zip == own
    own.unlink()
    assert read_zoo_folder(folder).zip == best
    best.unlink()
    assert read_zoo_folder(folder).zip == other
    shutil.copy(other, folder / "rl_model_200_steps.zip")
    with pytest.raises(ValueError, match=r"several agents.*: rl_model_100_steps.zip, rl_model_200_steps.zip"):
        read_zoo_folder(folder)


def test_the_environment_is_that_of_the_arguments_else_of_the_zip(zoo: Any) -> None:
    args = {"env": "ALE/Pong-v5", "env_kwargs": {"frameskip": 4, "render_mode": "human"}}
    folder = zoo(args=args, env_kwargs={"frameskip": 2, "mode": 1, "max_episode_steps": 90})
    found = read_zoo_folder(folder)
    assert found.env_id == "ALE/Pong-v5"
    assert (found.env_kwargs, found.max_episode_steps) == ({"frameskip": 4, "mode": 1}, 90)
    (folder / ID / "args.yml").unlink()
    assert read_zoo_folder(folder).env_id == ID
    (folder / f"{ID}.zip").rename(folder / "best_model.zip")
    assert read_zoo_folder(folder).env_id is None


def test_no_module_is_named_for_gymnasium_to_import(zoo: Any) -> None:
    folder = zoo(args={"env": "stranger:World-v0"})
    assert read_zoo_folder(folder).env_id is None
    (folder / ID / "args.yml").write_text(zoo_text({**ARGS, "env_kwargs": {"env_id": "stranger:World-v0"}}))
    with pytest.raises(ValueError, match=r"args.yml: env_kwargs has env_id='stranger:World-v0'"):
        read_zoo_folder(folder)


@pytest.mark.parametrize(
    ("normalize", "due"),
    [
        (True, True),
        ("{'norm_obs': True, 'norm_reward': False}", True),
        ("dict(norm_obs=True, norm_reward=False)", True),
        ({"norm_reward": False}, True),
        ("True", True),
        (False, False),
        (None, False),
        ("dict(norm_obs=False, norm_reward=True)", False),
        ({"norm_obs": False}, False),
    ],
)
def test_statistics_must_be_there_if_observations_were_normalised(
    zoo: Any, normalize: Any, due: bool
) -> None:
    folder = zoo("normalised", normalize=normalize)
    statistics = folder / ID / "vecnormalize.pkl"
    assert read_zoo_folder(folder).vec_normalize == (statistics if due else None)
    statistics.unlink()
    if due:
        with pytest.raises(ValueError, match=r"vecnormalize.pkl: there is no such file"):
            read_zoo_folder(folder)
    else:
        assert read_zoo_folder(folder).vec_normalize is None


def test_without_a_config_statistics_are_taken_if_there_are_some(zoo: Any) -> None:
    folder = zoo("normalised", normalize=True)
    (folder / ID / "config.yml").unlink()
    assert read_zoo_folder(folder).vec_normalize == folder / ID / "vecnormalize.pkl"
    (folder / ID / "vecnormalize.pkl").unlink()
    assert read_zoo_folder(folder).vec_normalize is None


@pytest.mark.parametrize(
    "normalize",
    [
        "__import__('os').mkdir('ran')",
        "dict(**{})",
        "dict(norm_obs=f())",
        "(" * 500,
        "1" * 5000,
        "7",
        "{[]: 1}",
    ],
)
def test_text_is_not_evaluated(
    zoo: Any, normalize: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"config.yml: .*(Python literal|must be true, false)"):
        read_zoo_folder(zoo(normalize=normalize))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("given", [["a"], "f()", {"a": float("nan")}, {1: 2}, {"max_episode_steps": 0.5}])
@pytest.mark.parametrize("file", ["args.yml", "config.yml"])
def test_keyword_arguments_are_plain_values(zoo: Any, given: Any, file: str) -> None:
    folder = zoo(**({"args": {"env_kwargs": given}} if file == "args.yml" else {"env_kwargs": given}))
    with pytest.raises(ValueError, match=rf"{file}: "):
        read_zoo_folder(folder)


# Wrappers


def test_wrappers_are_classes_with_plain_keyword_arguments(zoo: Any) -> None:
    wanted = [
        "gym.wrappers.FlattenObservation",
        {"gymnasium.wrappers.TimeAwareObservation": {"flatten": True}},
    ]
    flat, timed = read_zoo_folder(zoo(env_wrapper=[*wanted, {TIME: None}])).wrappers[:2]
    assert flat is FlattenObservation
    assert isinstance(timed, partial)
    assert (timed.func, timed.keywords) == (TimeAwareObservation, {"flatten": True})
    env = Environment(ID, wrappers=(flat, timed))
    assert env.observation_space.shape == (5,)


@pytest.mark.parametrize("given", [TIME, [TIME], [{TIME: {"max_steps": 300}}]])
def test_wrappers_are_stored_by_name(zoo: Any, given: Any) -> None:
    (wrapper,) = read_zoo_folder(zoo(env_wrapper=given)).wrappers
    stored = named(wrapper)
    assert stored.name == "sb3_contrib.common.wrappers.time_feature:TimeFeatureWrapper"
    assert stored.arguments == ({"max_steps": 300} if isinstance(given[0], dict) else {})
    assert isinstance(wrapper(gym.make(ID)), TimeFeatureWrapper)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"env_wrapper": "rl_zoo3.wrappers.MaskVelocityWrapper"}, "rl_zoo3.wrappers.MaskVelocityWrapper"),
        ({"env_wrapper": ["utils.wrappers.HistoryWrapper", TIME]}, "utils.wrappers.HistoryWrapper"),
        ({"env_wrapper": "os.system"}, "os.system"),
        ({"env_wrapper": "gymnasium.wrappers.importlib"}, "importlib .there is no wrapper of this name"),
        (
            {"env_wrapper": "gym.wrappers.FrameStack"},
            "gym.wrappers.FrameStack .there is no wrapper of this name",
        ),
        ({"env_wrapper": "gymnasium.wrappers.NormalizeObservation"}, "its statistics are not in the folder"),
        ({"env_wrapper": [{"gymnasium.wrappers.RecordVideo": {"video_folder": "x"}}]}, "RecordVideo"),
        ({"env_wrapper": [{TIME: {"steps": 3}}]}, "unexpected keyword argument 'steps'"),
        ({"env_wrapper": [{TIME: {"env": 3}}]}, "multiple values for argument 'env'"),
        ({"env_wrapper": "gymnasium.wrappers.DelayObservation"}, "missing a required argument: 'delay'"),
        ({"frame_stack": 4}, "frame_stack=4"),
        (
            {"vec_env_wrapper": "stable_baselines3.common.vec_env.VecFrameStack"},
            "VecFrameStack .a vec_env_wr",
        ),
    ],
)
def test_what_cannot_be_applied_is_refused_by_name(zoo: Any, config: dict[str, Any], said: str) -> None:
    folder = zoo(**config)
    with pytest.raises(ValueError, match=rf"trained with the wrappers .*{said}.*pass as env a function"):
        read_zoo_folder(folder)


def test_all_that_is_refused_is_named(zoo: Any) -> None:
    with pytest.raises(
        ValueError, match=r"with the wrappers a\.B, c\.D, e\.F \(a vec_env_wrapper\), frame_stack=4, which"
    ):
        read_zoo_folder(zoo(env_wrapper=["a.B", TIME, "c.D"], vec_env_wrapper="e.F", frame_stack=4))


@pytest.mark.parametrize("wrapper", [5, [["a", "b"]], [{"a": 1}], [{"a": {}, "b": {}}], {3: {}}])
def test_what_names_no_wrapper_is_refused(zoo: Any, wrapper: Any) -> None:
    with pytest.raises(ValueError, match=r"config.yml: .* is not the name of a wrapper"):
        read_zoo_folder(zoo(env_wrapper=wrapper))


# Hostile YAML

ORDERED = "!!python/object/apply:collections.OrderedDict"
BOMB = "a: &a [1, 1]\nb: &b [*a, *a]\nc: [*b, *b]\n"
HOSTILE = {
    "a call": ("!!python/object/apply:os.mkdir [ran]", "!!python/object/apply:os.mkdir would create"),
    "a call within": (
        f"{ORDERED}\n- - - a\n    - !!python/object/apply:os.mkdir [ran]",
        "apply:os.mkdir would",
    ),
    "an object": ("a: !!python/object/new:os.mkdir [ran]", "!!python/object/new:os.mkdir would"),
    "a module": ("a: !!python/module:antigravity", "!!python/module:antigravity would"),
    "a name": ("a: !!python/name:os.system", "!!python/name:os.system would"),
    "a tuple": ("a: !!python/tuple [1, 2]", "!!python/tuple would"),
    "another OrderedDict": ("!!python/object/apply:stranger.OrderedDict [[]]", "stranger.OrderedDict would"),
    "a local tag": ("a: !strange 1", "!strange"),
    "arguments by name": (f"{ORDERED} {{kwds: {{a: 1}}}}", "only OrderedDict is allowed"),
    "no pairs": (f"{ORDERED} [[[a]]]", "must be a list of pairs"),
    "two arguments": (f"{ORDERED} [[], []]", "must be a list of pairs"),
    "keys that are lists": (f"{ORDERED} [[[[a], b]]]", "the keys of an OrderedDict must be strings"),
    "keys that are numbers": ("1: 2", "expected an object with settings"),
    "deep": ("a: " + "[" * 10_000, "nested more than 50 levels deep"),
    "deep pairs": (f"{ORDERED}\n" + "- " * 5000, "nested more than 50 levels deep"),
    "aliases": (BOMB, "aliases are not allowed"),
    "huge": ("a: " + "1" * LARGEST_YAML, "too large"),
    "many digits": ("a: " + "1" * 10_000, "expected YAML with plain values only"),
    "a list": ("[a, b]", "expected an object with settings"),
    "nothing": ("", "expected an object with settings"),
    "noise": ("\x01\x02", "expected YAML with plain values only"),
}


@pytest.mark.parametrize("file", ["config.yml", "args.yml"])
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_yaml_is_refused_and_nothing_of_it_runs(
    zoo: Any, file: str, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = zoo()
    text, said = HOSTILE[case]
    (folder / ID / file).write_text(text)
    with pytest.raises(ValueError, match=rf"{file}: .*{said}") as refused:
        read_zoo_folder(folder)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 800
    assert not (tmp_path / "ran").exists()


def test_the_marker_of_hostile_yaml_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    yaml.unsafe_load(HOSTILE["a call"][0])
    assert (tmp_path / "ran").exists()


# On the command line


def test_a_folder_is_explained_by_its_zip_and_its_statistics(
    zoo: Any, trained: Path, compose_config: Compose
) -> None:
    world = ["experiment=cart_pole", "evaluation=none", "recording.episodes=0"]
    folder = zoo("normalised", normalize=True)
    named_ones = [
        f"policy.path={trained / 'normalised.zip'}",
        f"policy.vec_normalize={trained / 'vecnormalize.pkl'}",
    ]
    parts, due = (build(compose_config(*world, *agent)) for agent in ([f"policy.path={folder}"], named_ones))
    seen = np.random.default_rng(0).normal(size=(200, 4)).astype(np.float32)
    ours: Any = parts.trainer.policy
    np.testing.assert_array_equal(ours.action(seen), due.trainer.policy.action(seen))
    assert ours.normalization is not None
    bare: Any = build(
        compose_config(*world, f"policy.path={folder}", "policy.vec_normalize=false")
    ).trainer.policy
    assert bare.normalization is None


def test_statistics_that_are_named_come_first(zoo: Any, tmp_path: Path) -> None:
    folder, env = zoo("normalised", normalize=True), Environment(ID)
    others = VecNormalize(DummyVecEnv([lambda: gym.make(ID)]))
    statistics: Any = others.obs_rms
    statistics.mean = np.full(4, 5.0)
    others.save(str(tmp_path / "others.pkl"))
    policy = loaded(folder, env, vec_normalize=str(tmp_path / "others.pkl")).policy
    mean: Any = policy.normalization.mean  # type: ignore[union-attr]
    assert mean.tolist() == [5.0] * 4
    own = load_normalization(folder / ID / "vecnormalize.pkl", env.observation_space)
    np.testing.assert_array_equal(loaded(folder, env).policy.normalization.mean, own.mean)  # type: ignore[union-attr]


def test_a_folder_that_denies_the_normalisation_of_its_agent_is_refused(zoo: Any) -> None:
    with pytest.raises(ValueError, match="was trained under VecNormalize"):
        loaded(zoo("normalised", normalize=False), Environment(ID))


def test_an_environment_without_the_wrappers_is_refused_with_what_to_type(
    zoo: Any, compose_config: Compose
) -> None:
    folder = zoo("timed", env_wrapper=[{TIME: {"max_steps": 500}}])
    world = [
        "experiment=agent",
        "env=cart_pole",
        "evaluation=none",
        "recording.episodes=0",
        "explainer=network",
    ]
    with pytest.raises(
        ConfigError, match=r"policy: .*TimeFeatureWrapper, which CartPole-v1 does not"
    ) as refused:
        build(compose_config(*world, f"policy.path={folder}"))
    typed = str(refused.value).partition("observations: ")[2]
    parts = build(compose_config(*world, f"policy.path={folder}", typed))
    assert parts.env.observation_space.shape == (5,)
    parts.trainer.policy.action(np.zeros((1, 5), dtype=np.float32))


def test_wrappers_of_others_are_found_by_their_name(zoo: Any) -> None:
    folder = zoo(env_wrapper=f"{__name__}.Wrapped")
    with pytest.raises(
        ValueError, match=r"Wrapped, which CartPole-v1 does not have.*an environment that has it"
    ):
        zoo_agent(folder, Environment(ID))
    assert zoo_agent(folder, Environment(ID, wrappers=[partial(Wrapped)])).env_id == ID


class Wrapped(gym.Wrapper[Any, Any, Any, Any]):
    """Of a user."""


def test_an_environment_with_other_keyword_arguments_is_refused_with_what_to_type(
    zoo: Any, compose_config: Compose
) -> None:
    folder = zoo(args={"env_kwargs": {"sutton_barto_reward": True, "max_episode_steps": 77}})
    world = ["experiment=cart_pole", "evaluation=none", "recording.episodes=0", f"policy.path={folder}"]
    with pytest.raises(
        ConfigError, match=r"policy: .*other settings of its environment: set \+\+env"
    ) as refused:
        build(compose_config(*world))
    typed = str(refused.value).partition("environment: set ")[2].partition(",")[0].split()
    assert typed == [MAPPED, "++env.max_episode_steps=77"]
    env = build(compose_config(*world, *typed)).env
    assert (env.kwargs, env.time_limit) == ({"sutton_barto_reward": True}, 77)


def test_a_folder_that_is_none_of_the_zoo_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not the folder of an RL-Zoo agent"):
        loaded(tmp_path, Environment(ID))


def test_a_changed_folder_is_other_work(zoo: Any) -> None:
    folder = zoo("normalised", normalize=True)
    settings = {"policy": {"path": str(folder)}}
    before = fingerprint(settings)
    assert fingerprint(settings) == before
    for file in (folder / ID / "vecnormalize.pkl", folder / ID / "config.yml", folder / f"{ID}.zip"):
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))  # as large as before
        assert fingerprint(settings) != before
        file.write_bytes(content)


@pytest.mark.skipif(not (AGENTS / "a2c-Acrobot-v1.zip").exists(), reason="needs agents of other people")
def test_an_agent_of_other_people_plays_from_its_folder(tmp_path: Path) -> None:
    folder, name, agent = tmp_path / "Acrobot-v1_1", "Acrobot-v1", "a2c-Acrobot-v1"
    (folder / name).mkdir(parents=True)
    shutil.copy(AGENTS / f"{agent}.zip", folder / f"{name}.zip")
    shutil.copy(AGENTS / f"{agent}.config.yml", folder / name / "config.yml")
    shutil.copy(AGENTS / f"{agent}.vecnormalize.pkl", folder / name / "vecnormalize.pkl")
    found = read_zoo_folder(folder)
    assert (found.env_id, found.wrappers) == (name, ())
    env = Environment(name)
    policy = loaded(folder, env).policy
    by_hand = loaded(
        AGENTS / f"{agent}.zip", env, vec_normalize=str(AGENTS / f"{agent}.vecnormalize.pkl")
    ).policy
    seen = np.random.default_rng(0).uniform(-1, 1, (100, 6)).astype(np.float32)
    np.testing.assert_array_equal(policy.action(seen), by_hand.action(seen))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "env_wrapper: {gymnasium.wrappers.FrameStackObservation: {stack_size: 100000000}}",
            "stack_size is more",
        ),
        ("env_kwargs: {xml_file: /somewhere/evil.xml}", "looks like a file name"),
        ("env_kwargs: {options: [model.xml]}", "looks like a file name"),
        (
            "env_kwargs: {render_mode: human, inner: {render_mode: human}}",
            "render_mode is not allowed in a file",
        ),
    ],
)
def test_a_folder_makes_no_large_environment_and_opens_no_file(
    text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "CartPole-v1.zip").write_bytes(b"")
    (tmp_path / "config.yml").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_zoo_folder(tmp_path)
