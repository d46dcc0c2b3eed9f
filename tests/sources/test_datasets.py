"""Datasets: other tools read them, they lose nothing, and an explainer is learned from one alone."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from gymnasium import spaces
from hydra import compose, initialize_config_dir
from stable_baselines3 import PPO

from tests.support import Compose, small_mdp
from tests.support.datasets import STEPS, Given, assert_same, learner, training
from tests.support.hostile_files import in_footer
from tests.support.learning import train
from tpd.core.observations import pack
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import Array, Transitions, concatenate
from tpd.envs import Environment
from tpd.envs.dataset import DESCRIPTION, DatasetDescription
from tpd.envs.spaces import from_plain, to_plain
from tpd.policies.stored import POLICY
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.experiment import learn
from tpd.run.parts import ConfigError, build
from tpd.run.results import Findings, save_results
from tpd.run.training import DatasetTraining
from tpd.show.progress import ProgressBars
from tpd.sources import parquet
from tpd.sources.parquet import DatasetError, count_rows, read_shard, shard_path, write_shard
from tpd.store.fingerprints import digest_of
from tpd.tracking.runs import Run

SPACES: list[spaces.Space[Any]] = [
    spaces.Discrete(5),
    spaces.Discrete(3, start=-1),
    spaces.Box(-np.inf, np.inf, (4,), np.float32),
    spaces.Box(np.array([-0.1, -np.inf]), np.array([1 / 3, 2.0]), dtype=np.float64),
    spaces.Box(0, 255, (6, 5, 3), np.uint8),
    spaces.MultiDiscrete([2, 3], start=[0, 5]),
    spaces.MultiBinary(4),
    spaces.Dict({"far": spaces.Box(-1, 1, (2,), np.float32), "near": spaces.Discrete(2)}),
]


def make_dataset(folder: Path, **settings: Any) -> ReplayedFHTD:
    """Write a dataset, while somebody learns from it."""
    live, keys = learner(), settings.pop("info_keys", ())
    train(
        training(save_dataset=str(folder), **settings),
        small_mdp.environment(),
        Given(),
        generator(0, "test"),
        learning=[live.update],
        info_keys=keys,
    )
    return live


def random_transitions(space: spaces.Space[Any], count: int, info: dict[str, Array]) -> Transitions:
    """Anything that the space holds, and numbers that are hard to keep."""
    space.seed(0)
    drawn = [space.sample() for _ in range(2 * count)]
    observations = (
        pack({key: np.stack([one[key] for one in drawn]) for key in space})
        if isinstance(space, spaces.Dict)
        else np.stack(drawn)
    )
    reward = np.resize([0.1, -0.0, 1e308, -1e-308, 5e-324, 1 / 3], count)
    yes = np.arange(count) % 3 == 0
    return Transitions(
        observations[:count], np.arange(count) % 2, observations[count:], reward, yes, ~yes, info
    )


def description(space: spaces.Space[Any], *info_keys: str) -> DatasetDescription:
    return DatasetDescription("Any-v0", space, spaces.Discrete(2), (), info_keys, 1, {})


def written(path: Path, batches: list[Transitions]) -> Path:
    assert [len(batch) for batch in write_shard(path, batches)] == [len(batch) for batch in batches]
    return path


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_spaces_survive_exactly(space: spaces.Space[Any]) -> None:
    again = from_plain(json.loads(json.dumps(to_plain(space), allow_nan=False)))
    assert again == space
    assert again.dtype == space.dtype
    if isinstance(space, spaces.Box):
        assert isinstance(again, spaces.Box)
        assert_same(again.low, space.low)
        assert_same(again.high, space.high)


@pytest.mark.parametrize("space", SPACES, ids=str)
def test_transitions_survive_exactly(space: spaces.Space[Any], tmp_path: Path) -> None:
    info = {
        "half": np.linspace(-1, 1, 700, dtype=np.float16),
        "large": np.arange(700, dtype=np.uint64) + 2**63,
        "matrix": np.arange(700 * 6, dtype=np.int8).reshape(700, 2, 3),
        "flags": np.arange(1400).reshape(700, 2) % 3 == 0,
    }
    batch = random_transitions(space, 700, info)
    path = written(shard_path(tmp_path, 0), [batch[:300], batch[300:]])
    read = concatenate(list(read_shard(path, description(space, *info))))
    for name in ("observation", "action", "next_observation", "reward", "terminated", "truncated"):
        assert_same(getattr(read, name), getattr(batch, name))
    for key, values in info.items():
        assert_same(read.info[key], values)
    assert read.observation.flags.writeable


def test_other_tools_read_plain_columns(tmp_path: Path) -> None:
    space = spaces.Box(-1, 1, (3,), np.float32)
    batch = random_transitions(space, 100, {"fuel": np.arange(100)})
    frame = pd.read_parquet(written(tmp_path / "x.parquet", [batch]))
    columns = ["observation", "action", "next_observation", "reward", "terminated", "truncated", "info.fuel"]
    assert list(frame.columns) == columns
    np.testing.assert_array_equal(np.stack(list(frame["observation"])), batch.observation)
    assert frame["info.fuel"].tolist() == list(range(100))
    kind = pq.read_schema(tmp_path / "x.parquet").field("observation").type
    assert kind == pa.list_(pa.float32(), 3)


def test_batches_come_back_as_they_were_and_small_ones_are_joined(tmp_path: Path) -> None:
    batch = random_transitions(spaces.Discrete(5), 60_000, {})
    cuts = [batch[:10], batch[10:20], batch[20:9_000], batch[9_000:59_000], batch[59_000:]]
    read = read_shard(written(tmp_path / "x.parquet", cuts), description(spaces.Discrete(5)))
    assert [len(part) for part in read] == [9_000, 50_000, 1_000]


def test_wide_rows_are_read_a_few_at_a_time(tmp_path: Path) -> None:
    """More than 64 MB are never held at once, however the rows came."""
    space = spaces.Box(0, 255, (100, 100), np.float64)
    images = np.zeros((450, 100, 100))
    images[:, 0, 0] = np.arange(450)
    flags = np.zeros(450, bool)
    batch = Transitions(images, np.zeros(450, int), images, np.zeros(450), flags, flags)
    parts = list(read_shard(written(tmp_path / "x.parquet", [batch]), description(space)))
    assert max(2 * part.observation.nbytes for part in parts) < 65e6 < 2 * images.nbytes
    assert_same(concatenate(parts).observation, images)


def test_a_shard_appears_only_when_it_is_whole(tmp_path: Path) -> None:
    batch = random_transitions(spaces.Discrete(5), 6_000, {})
    path = shard_path(tmp_path, 0)

    def failing() -> Iterator[Transitions]:
        yield batch
        assert len(list(tmp_path.iterdir())) == 1  # something is being written
        assert not path.exists()
        raise OSError("the env broke")

    with pytest.raises(OSError, match="the env broke"):
        list(write_shard(path, failing()))
    assert list(tmp_path.iterdir()) == []
    unfinished = write_shard(path, [batch, batch])
    next(unfinished)
    unfinished.close()  # type: ignore[attr-defined]
    assert list(tmp_path.iterdir()) == []


def test_what_is_no_number_is_refused_by_name(tmp_path: Path) -> None:
    batch = random_transitions(spaces.Discrete(5), 10, {"mood": np.array(["good"] * 10)})
    with pytest.raises(DatasetError, match=r"info\.mood has dtype <U4, but only booleans"):
        list(write_shard(tmp_path / "x.parquet", [batch]))
    with pytest.raises(DatasetError, match="no transitions"):
        list(write_shard(tmp_path / "x.parquet", []))
    assert list(tmp_path.iterdir()) == []


def rewritten(path: Path, change: Callable[[Any], Any]) -> None:
    pq.write_table(change(pq.read_table(path)), path)


def replaced(name: str, values: Any) -> Callable[[Any], Any]:
    return lambda table: table.set_column(table.column_names.index(name), name, values)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop_columns(["reward"]), "the column reward is missing"),
        (replaced("reward", pa.array(["much"] * 50)), "the column reward has the unsupported type string"),
        (replaced("terminated", pa.array([1] * 50)), "the column terminated has the unsupported type int64"),
        (replaced("action", pa.array([None, *[0] * 49])), "the column action has 1 rows without"),
        (
            replaced("action", pa.array([7] * 50)),
            r"action has 7 in row 0, which is not in Discrete\(2\)",
        ),
        (
            replaced("observation", pa.array([-1] * 50)),
            "observation has -1 in row 0, which is not in",
        ),
        (replaced("next_observation", pa.array([0.5] * 50)), "the column next_observation has type double"),
        (replaced("action", pa.array([0.5] * 50)), "the column action has dtype float64"),
        (replaced("reward", pa.array([0.0] * 49 + [np.nan])), "the column reward has nan in row 49"),
        (replaced("reward", pa.array([np.inf] * 50)), "the column reward has inf in row 0"),
        (replaced("action", pa.array([[0, 1]] * 50)), "the column action has the unsupported type list"),
        (
            replaced("info.fuel", pa.array([{"a": "b"}] * 50)),
            r"the column info\.fuel has the unsupported type struct",
        ),
    ],
)
def test_a_wrong_file_is_refused_by_file_and_column(
    change: Callable[[Any], Any], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "x.parquet"
    written(path, [random_transitions(spaces.Discrete(5), 50, {"fuel": np.arange(50)})])
    assert sum(map(len, read_shard(path, description(spaces.Discrete(5), "fuel")))) == 50
    rewritten(path, change)
    with pytest.raises(DatasetError, match=message) as caught:
        list(read_shard(path, description(spaces.Discrete(5), "fuel")))
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def forged(path: Path, space: spaces.Space[Any], observations: Array, **columns: Any) -> Path:
    """A shard of these observations, as another tool could write it."""
    batch = random_transitions(space, len(observations), {})
    seen = replace(batch, observation=observations, next_observation=observations, **columns)
    return written(path, [seen])


def test_what_a_space_does_not_hold_is_refused(tmp_path: Path) -> None:
    """As numbers of Discrete spaces are; only a little beyond the bounds of a Box is let in."""
    box, path = spaces.Box(-10, 10, (4,), np.float32), tmp_path / "x.parquet"
    values = np.zeros((50, 4), np.float32)
    values[7, 2] = 110  # as LunarLander does
    assert len(concatenate(list(read_shard(forged(path, box, values), description(box))))) == 50
    for far in ("230.0", "-231.0", "1e+30", "inf"):
        values[7, 2] = float(far)
        told = re.escape(
            f"x.parquet: the column observation has {values[7, 2]} in row 7, which is not in Box"
        )
        with pytest.raises(DatasetError, match=told):
            list(read_shard(forged(path, box, values), description(box)))
    values[7, 2] = np.nan
    with pytest.raises(DatasetError, match="the column observation has nan in row 7, which is not in Box"):
        list(read_shard(forged(path, box, values), description(box)))
    for other, value in (
        (spaces.Box(0, np.inf, (4,), np.float32), -11.0),
        (spaces.Box(-np.inf, np.inf, (4,), np.float32), -np.inf),
        (spaces.Box(0, 7, (4,), np.int64), 8),
    ):
        with pytest.raises(DatasetError, match=f"has {value} in row 0, which is not in Box"):
            list(read_shard(forged(path, other, np.full((9, 4), value, other.dtype)), description(other)))
    sizes, numbers = spaces.MultiDiscrete([2, 3]), np.full((50, 2), 3)
    with pytest.raises(DatasetError, match="observation has 3 in row 0, which is not in MultiDiscrete"):
        list(read_shard(forged(path, sizes, numbers), description(sizes)))


@pytest.mark.parametrize(("width", "hidden_state"), [(5, 0), (4, 3), (8, 3), (3, None)])
def test_a_hidden_state_is_as_long_as_the_policy_s(
    width: int, hidden_state: int | None, tmp_path: Path
) -> None:
    box = spaces.Box(-10, 10, (4,), np.float32)
    path = forged(tmp_path / "x.parquet", box, np.zeros((50, width), np.float32))
    with pytest.raises(
        DatasetError, match=rf"has dtype float32 and shape \({width},\), which does not fit Box"
    ):
        list(read_shard(path, description(box), hidden_state))
    path = forged(path, box, np.zeros((50, 7), np.float32))
    assert sum(map(len, read_shard(path, description(box), 3))) == 50


@pytest.mark.parametrize("stream", [300_000_000, 10**15, -5, 2**64 - 1])
def test_streams_are_numbered_from_0_and_not_too_far(stream: int, tmp_path: Path) -> None:
    numbers = np.array([stream] * 50, np.uint64 if stream > 10**15 else np.int64)
    path = forged(tmp_path / "x.parquet", spaces.Discrete(5), np.zeros(50, int), stream=numbers)
    with pytest.raises(DatasetError, match=rf"x\.parquet: the column stream must be .* got {stream}"):
        list(read_shard(path, description(spaces.Discrete(5))))


def test_what_the_pages_hold_counts_and_not_what_the_footer_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = forged(tmp_path / "x.parquet", spaces.Discrete(5), np.zeros(6_000, int))
    about = pq.read_metadata(path).row_group(0)
    monkeypatch.setattr(parquet, "LARGEST_GROUP", about.total_byte_size - 1)
    with pytest.raises(DatasetError, match="a row group is too large"):
        list(read_shard(path, description(spaces.Discrete(5))))
    in_footer(path, about.total_byte_size, 1)
    monkeypatch.setattr(parquet, "LARGEST_GROUP", 200)
    with pytest.raises(DatasetError, match="a row group is too large"):
        list(read_shard(path, description(spaces.Discrete(5))))


def test_a_page_holds_no_more_rows_than_are_claimed(tmp_path: Path) -> None:
    path = forged(tmp_path / "x.parquet", spaces.Discrete(5), np.zeros(6_000, int))
    in_footer(path, 6_000, 1)
    assert count_rows(path) == 1
    with pytest.raises(
        DatasetError, match=r"the column observation .* 6000 values, but its row group has only 1"
    ):
        list(read_shard(path, description(spaces.Discrete(5))))


def test_rows_are_bounded_by_the_size_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "FEW_ROWS", 100)
    monkeypatch.setattr(parquet, "ROWS_PER_BYTE", 1)
    path = forged(tmp_path / "x.parquet", spaces.Discrete(5), np.zeros(6_000, int))
    with pytest.raises(
        DatasetError, match=r"x\.parquet: 6000 rows are declared, too many for a file of \d+ bytes"
    ):
        count_rows(path)


def test_a_changed_bit_is_found_and_its_column_named(tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    written(path, [random_transitions(spaces.Discrete(5), 6_000, {})])
    chunk = pq.ParquetFile(path).metadata.row_group(0).column(2)
    content = bytearray(path.read_bytes())
    content[chunk.data_page_offset + chunk.total_compressed_size // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DatasetError, match="the column next_observation cannot be read"):
        list(read_shard(path, description(spaces.Discrete(5))))


@pytest.mark.parametrize("content", [b"", b"PAR1 and nothing more", b"PAR1" + bytes(1000) + b"PAR1"])
def test_what_is_no_parquet_is_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.parquet"
    path.write_bytes(content)
    with pytest.raises(DatasetError, match=r"x\.parquet cannot be read as a Parquet file"):
        count_rows(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": 9}, "it has format 9"),
        ({"shards": "many"}, "shards must be a whole number"),
        ({"shards": 3}, r"shard-00001\.parquet is missing: the dataset has 3 shards"),
        ({"action_space": {"kind": "Text"}}, "unknown type of space: 'Text'"),
        ({"action_space": {}}, "'kind' is missing"),
        (
            {"action_space": {"kind": "Discrete", "n": -3, "start": 0, "dtype": "int64"}},
            "does not describe a data",
        ),
        (
            {
                "observation_space": {
                    "kind": "Box",
                    "shape": [10**13],
                    "dtype": "float32",
                    "low": "0",
                    "high": "1",
                }
            },
            "bytes, more than the limit",
        ),
    ],
)
def test_a_wrong_description_is_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    make_dataset(tmp_path / "r")
    path = tmp_path / "r" / DESCRIPTION
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=message) as caught:
        DatasetTraining(path=str(tmp_path / "r"), processes=1)
    assert "\n" not in str(caught.value)


def test_a_folder_without_a_dataset_and_one_that_has_one_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a dataset"):
        DatasetTraining(path=str(tmp_path), processes=1)
    with pytest.raises(ValueError, match="set the folder"):
        DatasetTraining(path=None, processes=1)
    make_dataset(tmp_path / "r")
    with pytest.raises(ValueError, match="already contains a dataset"):
        training(save_dataset=str(tmp_path / "r")).check(small_mdp.environment(), ())


def test_what_is_learned_from_a_dataset_is_what_was_learned_live(tmp_path: Path) -> None:
    live, again = make_dataset(tmp_path / "r"), learner()
    source = DatasetTraining(path=str(tmp_path / "r"), processes=1)
    source.check(small_mdp.environment(), ())
    train(source, small_mdp.environment(), Given(), generator(1, "other"), learning=[again.update])
    assert source.transitions(Given()) == STEPS
    assert_same(again.table().expected, live.table().expected)
    np.testing.assert_array_equal(
        np.load(tmp_path / "r" / POLICY)["probabilities"],
        Given().policy.probabilities(np.arange(small_mdp.NUM_STATES)),
    )


def test_writing_a_dataset_changes_nothing_that_is_learned(tmp_path: Path) -> None:
    plain = learner()
    train(training(), small_mdp.environment(), Given(), generator(0, "test"), learning=[plain.update])
    assert_same(make_dataset(tmp_path / "r").table().expected, plain.table().expected)


def test_a_dataset_of_something_else_is_refused(tmp_path: Path) -> None:
    make_dataset(tmp_path / "r")
    source = DatasetTraining(path=str(tmp_path / "r"), processes=1)
    with pytest.raises(ValueError, match=r"observation_space of FrozenLake-v1 is Discrete\(16\)"):
        source.check(Environment("FrozenLake-v1"), ())
    with pytest.raises(
        ValueError,
        match=r"an outcome reads info\['parity'\], which is not in the dataset; its info keys: none",
    ):
        source.check(small_mdp.environment(), ("parity",))


LIVE = ["env=cart_pole", "training=agent", "training.steps=7000", "evaluation=none"]
FROM_DATASET = ["env=dataset", "training=dataset", "evaluation=none", "recording.episodes=0"]


@pytest.fixture(scope="module")
def cart_pole(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The overrides for an agent's zip, and last for a dataset of what it does."""
    folder = tmp_path_factory.mktemp("cart_pole")
    PPO("MlpPolicy", gym.make("CartPole-v1"), device="cpu", seed=0).save(folder / "agent.zip")
    agent = ["policy=sb3_zip", f"policy.path={folder / 'agent.zip'}", "outcomes=default"]
    network = ["explainer=network", "explainer.horizon=5", "explainer.fit_updates=20"]
    overrides = [*agent, *network, *LIVE, f"training.save_dataset={folder / 'r'}"]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        learn_network(compose("config", overrides))
    return [*agent, *network, f"training.path={folder / 'r'}"]


def learn_network(config: Any) -> Any:
    parts = build(config)
    learn(parts, Run(), ProgressBars(False))
    return parts


def test_a_dataset_has_one_digest_whether_it_is_written_or_read(
    tmp_path: Path, compose_config: Compose
) -> None:
    told = list[tuple[Any, ...]]()

    class Told(Run):
        def data(self, *arguments: Any) -> None:
            told.append(arguments)

    folder = tmp_path / "r"
    table = ["env=frozen_lake", "outcomes=frozen_lake", "explainer=replayed", "policy.steps=100"]
    for chosen in (
        ["training.steps=500", f"training.save_dataset={folder}"],
        ["training=dataset", f"training.path={folder}"],
        ["training.steps=500"],
    ):
        learn(build(compose_config(*table, *chosen)), Told(), ProgressBars(False))
    written, read, unsaved = told
    assert written == read == ("r", digest_of(folder), 500, str(folder))
    assert unsaved[::2] == ("FrozenLake-v1 transitions", 500)
    (folder / "shard-00001.parquet").write_bytes(b"more")
    assert digest_of(folder) != read[1]


@pytest.mark.no_cover
def test_a_network_is_learned_from_a_dataset_with_no_env_at_hand(
    cart_pole: list[str], tmp_path: Path, compose_config: Compose
) -> None:
    state = "+figures.upright={pairs: [{state: [0, 0, 0, 0]}]}"
    alone = learn_network(compose_config(*cart_pole, *FROM_DATASET, state))
    beside = learn_network(compose_config(*cart_pole, "env=cart_pole", "training=dataset", "evaluation=none"))
    live = learn_network(compose_config(*cart_pole[:-1], *LIVE))
    for other in (beside, live):
        for name, weights in alone.explainer.predictor.arrays().items():
            assert_same(weights, other.explainer.predictor.arrays()[name])
    assert alone.explainer.predictor.updates > 0
    save_results(alone, Findings(None, None), {}, None, tmp_path / "run", Run())
    assert (tmp_path / "run/plots/upright.png").stat().st_size > 0


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("evaluation", "exact", "evaluation: Dataset-v0 has no table P"),
        ("explainer", "replayed", "explainer: a table needs discrete observations, but Dataset-v0"),
        ("training.path", "nowhere", "env: nowhere is not a dataset"),
        ("training.path", "null", "env: set the folder of the dataset"),
        ("training", "agent", "training: Dataset-v0 cannot be stepped: learn with training=dataset"),
    ],
)
def test_what_a_dataset_cannot_do_is_refused_in_one_line(
    setting: str, value: str, message: str, cart_pole: list[str], compose_config: Compose
) -> None:
    overrides = [given for given in [*cart_pole, *FROM_DATASET] if not given.startswith(f"{setting}")]
    if setting == "training":
        overrides.append(f"env.kwargs.path={cart_pole[-1].removeprefix('training.path=')}")
    with pytest.raises(ConfigError, match=message) as caught:
        build(compose_config(*overrides, f"{setting}={value}"))
    assert "\n" not in str(caught.value)


def test_outcomes_of_what_the_dataset_has_not_are_refused(
    cart_pole: list[str], compose_config: Compose
) -> None:
    config = compose_config(*cart_pole, *FROM_DATASET)
    config.outcomes = {"_target_": "tests.sources.test_datasets.windy"}
    with pytest.raises(
        ConfigError, match=r"info\['wind'\], which is not in the dataset; its info keys: none"
    ):
        build(config)


def windy() -> OutcomeSet:
    return OutcomeSet([event("wind", lambda t: t.info["wind"], info_keys=["wind"])])


def test_info_is_dataset_and_learned_from(tmp_path: Path) -> None:
    make_dataset(tmp_path / "r", info_keys=("parity",))
    folder = tmp_path / "r"
    batch = concatenate(list(read_shard(shard_path(folder, 0), DatasetDescription.read(folder))))
    np.testing.assert_array_equal(batch.info["parity"], batch.next_observation % 2)
    DatasetTraining(path=str(folder), processes=1).check(small_mdp.environment(), ("parity",))


def test_nothing_plays_in_a_dataset_env(tmp_path: Path) -> None:
    make_dataset(tmp_path / "r")
    env = gym.make("Dataset-v0", path=str(tmp_path / "r"))
    assert env.observation_space == spaces.Discrete(small_mdp.NUM_STATES)
    with pytest.raises(RuntimeError, match="it cannot be reset or stepped"):
        env.reset()
    shutil.rmtree(tmp_path / "r")
    with pytest.raises(ValueError, match="is not a dataset"):
        gym.make("Dataset-v0", path=str(tmp_path / "r"))
