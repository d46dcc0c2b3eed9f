"""What can be wrong with a file or a request, on purpose: each changes a good one."""

import base64
import io
import json
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import torch
import yaml

from tests.support.good_files import MARKER, MODULE
from tpd.store.checkpoints import Checkpoint

Spoil = Callable[[Path], object]
"""Makes the good file in a folder a hostile one."""
Entries = dict[str, bytes]
"""What a zip file holds, by names."""


class Bomb:
    """Leaves a folder behind when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, (MARKER,)


BOMB = pickle.dumps(Bomb())
DEEP = b"[" * 100_000
OUTSIDE = "a member named ../../"
OTHER_PICKLES = "a pickle as pytorch_variables.pth"
SETTINGS = "pickles in its settings"


# Anywhere


def anywhere(file: str) -> dict[str, Spoil]:
    """What can be put in place of any file."""
    return {
        "a pickle that runs code": with_bytes(file, BOMB),
        "nothing in it": with_bytes(file, b""),
        "noise": with_bytes(file, np.random.default_rng(0).bytes(5000)),
        "half of it": partial(_cut, file),
        "a pipe": partial(_in_place, file, os.mkfifo),
        "a link to bytes without end": partial(_in_place, file, partial(os.symlink, "/dev/zero")),
        "a folder in its place": partial(_in_place, file, os.mkdir),
        "no such file": partial(_in_place, file, str),
    }


def with_bytes(file: str, content: bytes) -> Spoil:
    """These bytes in place of a file."""
    return lambda folder: (folder / file).write_bytes(content)


def _cut(file: str, folder: Path) -> None:
    path = folder / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _in_place(file: str, make: Callable[[str], object], folder: Path) -> None:
    (folder / file).unlink()
    make(str(folder / file))


# Text


def with_values(file: str, change: Callable[[Any], Any]) -> Spoil:
    """Other values in a JSON or YAML file; JSON is YAML too."""

    def spoil(folder: Path) -> None:
        plain = change(yaml.safe_load((folder / file).read_text()))
        (folder / file).write_text(json.dumps(plain))

    return spoil


def with_keys(file: str, **values: Any) -> Spoil:
    """Other values of some keys; those inside of others by names with two underscores."""

    def change(plain: dict[str, Any]) -> dict[str, Any]:
        for path, value in values.items():
            *outer, last = path.split("__")
            place = plain
            for key in outer:
                place = place[key]
            place[last] = value
        return plain

    return with_values(file, change)


def description(file: str) -> dict[str, Spoil]:
    """The JSON of an explainer."""
    return {
        "a list": with_bytes(file, b"[]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
        "no legend": with_keys(file, legend={}),
        "outcomes of one name": with_keys(file, legend__names=["a", "a"], legend__weights=[1, 1]),
        "weights that are words": with_keys(file, legend__weights=["os.system"] * 5),
        "a discount of 2": with_keys(file, discount=2),
        "a discount that is no number": with_keys(file, discount=float("nan")),
        "another format": with_keys(file, format="os.system"),
    }


def network(file: str) -> dict[str, Spoil]:
    """The JSON of an explainer that is a network."""
    return {
        "10^12 hidden units": with_keys(file, network__hidden=[10**12]),
        "layers of 10^5 x 10^5": with_keys(file, network__hidden=[10**5, 10**5]),
        "a million layers": with_keys(file, network__hidden=[1] * 1_000_000),
        "10^9 outcomes": with_keys(file, network__columns__width=10**9),
        "a mixture of mixtures": with_keys(file, network={"kind": "mixture", "network": {"kind": "mixture"}}),
        "hidden units that are words": with_keys(file, network__hidden=["os.system"]),
        "a horizon of 10^12": with_keys(file, network__horizon=10**12),
        "a horizon of 0": with_keys(file, network__horizon=0),
        "observations of 10^12 numbers": with_keys(file, network__observation_space__shape=[10**12]),
        "10^12 actions": with_keys(file, network__action_space__n=10**12),
        "columns that there are not": with_keys(file, network__columns={"partition": [7]}),
        "observations of objects": with_keys(file, network__observation_space__dtype="O"),
        "10^12 choices of an action": with_keys(
            file,
            network__action_space={
                "kind": "MultiDiscrete",
                "shape": [1],
                "dtype": "int64",
                "nvec": str(10**12),
                "start": "0",
            },
        ),
        "a network that is a word": with_keys(file, network="os.system"),
    }


def stored_agent(file: str) -> dict[str, Spoil]:
    """The JSON of an explainer that is stored with an agent of SB3."""

    def settings(**values: Any) -> Spoil:
        return with_keys(file, **{f"policy__settings__{name}": value for name, value in values.items()})

    wide = {"kind": "Box", "shape": [10**6], "dtype": "float32", "low": "0", "high": "1"}
    return {
        "an agent of another library": with_keys(file, policy__library="os"),
        "a policy of another kind": with_keys(file, policy__kind="os.system"),
        "no policy": with_keys(file, policy={}),
        "an algorithm that there is not": settings(algorithm="os.system"),
        "a policy class that there is not": settings(policy="os.system"),
        "a setting more": settings(strange=1),
        "a switch that is a number": settings(deterministic=1),
        "updates of 400 digits": settings(updates=10**400),
        "updates that are no number": settings(updates=float("nan")),
        "an interpolation": settings(policy="${oc.env:HOME}"),
        "a _target_": settings(policy_settings={"_target_": "os.system"}),
        "an activation that there is not": settings(policy_settings__activation_fn="os.system"),
        "other layers than the weights": settings(policy_settings__net_arch={"pi": [7], "vf": [4]}),
        "10^12 hidden units": settings(policy_settings__net_arch=[10**12]),
        "observations of 10^6 numbers": settings(observation_space=wide),
        "10^9 actions": settings(action_space__n=10**9),
        "statistics that there are not": settings(normalization={"epsilon": 1e-8}),
    }


def returns(file: str) -> dict[str, Spoil]:
    """The JSON of an explainer with a network of returns."""
    return {
        "10^12 atoms": with_keys(file, network__returns__atoms=10**12),
        "atoms that are words": with_keys(file, network__returns__atoms="os.system"),
        "fewer atoms than were stored": with_keys(file, network__returns__atoms=5),
        "returns with a discount of 2": with_keys(file, network__returns__discount=2),
        "returns without a bound": with_keys(file, network__returns__bound=float("inf")),
        "returns of another kind": with_keys(file, network__returns__kind="os.system"),
        "returns that are a word": with_keys(file, network__returns="os.system"),
    }


def about(file: str) -> dict[str, Spoil]:
    """The JSON of what a run is about."""

    def env(**values: Any) -> Spoil:
        return with_values(file, lambda plain: {**plain, "env": {**plain["env"], **values}})

    def first_outcome(**values: Any) -> Spoil:
        def changed(plain: dict[str, Any]) -> dict[str, Any]:
            plain["outcomes"]["outcomes"][0] |= values
            return plain

        return with_values(file, changed)

    def function(name: str, **arguments: Any) -> Spoil:
        return first_outcome(function={"name": name, "arguments": arguments})

    def wrapper(name: str) -> Spoil:
        return env(wrappers=[{"name": name}])

    target = {"_target_": "os.mkdir", "_args_": [MARKER]}
    deep: Any = 0
    for _ in range(500):
        deep = [deep]
    return {
        "a list": with_bytes(file, b"[]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
        "another format": with_keys(file, format=99),
        "a field more": with_keys(file, strange=1),
        "a _target_ for an environment": with_keys(file, env=target),
        "a _target_ among the settings": env(kwargs={"a": [target]}),
        "a _target_ among the arguments": function("tpd.envs.events.default:took", action=target),
        "an interpolation": env(kwargs={"a": "${oc.env:HOME}"}),
        "settings 500 deep": env(kwargs={"a": deep}),
        "settings of 400 digits": env(kwargs={"a": 10**400}),
        "settings that are no numbers": env(kwargs={"a": float("nan")}),
        "a map of 480 x 480": env(kwargs={"desc": ["S" + "F" * 478 + "G"] * 480}),
        "a window": env(kwargs={"render_mode": "human"}),
        "a window within": env(kwargs={"make_kwargs": {"render_mode": "human"}}),
        IMPORTS: env(id="stranger:Env-v0"),
        IMPORTS_BY_SETTING: env(id="GymV26Environment-v0", kwargs={"env_id": "stranger:Env-v0"}),
        "an id with two modules": env(id="tpd.envs:stranger:Env-v0"),
        "a wrapper of strangers": wrapper("stranger:Wrapper"),
        "a wrapper of Python": wrapper("os:mkdir"),
        "a wrapper through our imports": wrapper("tpd.envs.events.default:partial"),
        FUNCTION: function("stranger:landed"),
        "a function of Python": function("os:system"),
        "a function behind a dot": function("tpd.envs.events.default:np.load"),
        "a function through our imports": function("tpd.envs.events.default:partial"),
        "a function of ours that is none": function("tpd.envs.events.default:np"),
        "a function beside our events": function("tpd.envs.events.stranger:landed"),
        "a function in a place that looks like ours": function("tpd.envs.events_of_strangers:landed"),
        "a function with a path": function("../stranger:landed"),
        "a function without a module": function("landed"),
        "a mask of strangers": env(mask_function={"name": "stranger:mask"}),
        "a bound that is a word": first_outcome(low="os.system"),
        "a bound that is no number": first_outcome(high=float("inf")),
        "bounds the wrong way round": first_outcome(low=2.0),
        "another outcome": first_outcome(name="another"),
        "an event that is a word": first_outcome(kind="os.system"),
        "no outcomes": with_keys(file, outcomes__outcomes=[]),
        "a claim that is a word": with_keys(file, outcomes__partition="yes"),
        "an environment that there is not": env(id="No-v0"),
        "a setting that there is not": env(kwargs={"strange": 1}),
        "a figure outside": with_keys(file, figures=[{"name": "../../x", "title": "x", "states": ["x"]}]),
        "a seed that is a word": with_keys(file, seed="os.system"),
    }


IMPORTS, IMPORTS_BY_SETTING = (
    "an environment id that imports a module",
    "an environment id that imports a module, by a setting",
)
FUNCTION = "a function of strangers"


def record(file: str) -> dict[str, Spoil]:
    """What is known of a run or sweep."""
    return {
        "a list": with_bytes(file, b"[]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
    }


def words(file: str) -> dict[str, Spoil]:
    """A list of words in YAML."""
    return {
        "!!python/object/apply": with_bytes(file, f"- !!python/object/apply:os.mkdir [{MARKER}]".encode()),
        "a number among the words": with_bytes(file, b"[a, 1]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
    }


def zoo(file: str) -> dict[str, Spoil]:
    """YAML of the RL-Zoo, in which one Python object is read as plain pairs."""
    ordered = "!!python/object/apply:collections.OrderedDict"
    call = f"!!python/object/apply:os.mkdir [{MARKER}]"
    aliases = "".join(f"{b}: &{b} [*{a}, *{a}]\n" for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    return {
        "!!python/object/apply": with_bytes(file, call.encode()),
        "a call within an OrderedDict": with_bytes(file, f"{ordered} [[[a, {call}]]]".encode()),
        "an OrderedDict of strangers": with_bytes(file, b"!!python/object/apply:stranger.OrderedDict [[]]"),
        "a tuple": with_bytes(file, b"a: !!python/tuple [1]"),
        "a module": with_bytes(file, b"a: !!python/module:stranger"),
        "an OrderedDict without pairs": with_bytes(file, f"{ordered} [[a]]".encode()),
        "aliases that swell": with_bytes(file, f"a: &a [1, 1]\n{aliases}".encode()),
        "brackets 60 000 deep": with_bytes(file, DEEP[:60_000]),
        "1 MB of it": with_bytes(file, b"a: 1\n" * 200_000),
        "a list": with_bytes(file, b"[]"),
        "env_kwargs that are a word": with_bytes(file, b"env_kwargs: os.system"),
    }


def zoo_config(file: str) -> dict[str, Spoil]:
    """What the config of the RL-Zoo evaluates and imports."""
    code = f"__import__('os').mkdir('{MARKER}')"

    def stranger(folder: Path) -> None:
        (folder / file).write_text("env_wrapper: stranger.Wrapper")
        (folder / "stranger.py").write_text(MODULE)

    return {
        **zoo(file),
        "a normalize that is code": with_bytes(file, json.dumps({"normalize": code}).encode()),
        "a dict with code": with_bytes(file, json.dumps({"normalize": f"dict(norm_obs={code})"}).encode()),
        "a wrapper of strangers": stranger,
        "a wrapper that is no wrapper": with_bytes(file, b"env_wrapper: gymnasium.wrappers.importlib"),
    }


def best(file: str) -> dict[str, Spoil]:
    """What a sweeper found best."""
    return {
        "!!python/object/apply": with_bytes(file, f"a: !!python/object/apply:os.mkdir [{MARKER}]".encode()),
        "a best that is a word": with_keys(file, best_value="os.system"),
        "nothing that is best": with_bytes(file, b"a: 1"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
    }


def table(file: str, number: str) -> dict[str, Spoil]:
    """A table in JSON, of which one column of numbers has this name."""

    def changed(change: Callable[[Any, Any], Any]) -> Spoil:
        def column(plain: dict[str, Any]) -> dict[str, Any]:
            place = plain["columns"].index(number)
            for row in plain["data"]:
                row[place] = change(row, place)
            return plain

        return with_values(file, column)

    return {
        "a list": with_bytes(file, b"[]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
        "nothing in the table": with_bytes(file, b"{}"),
        "no rows": with_keys(file, data=[]),
        "rows of another length": with_values(
            file, lambda plain: {**plain, "data": [row[:-1] for row in plain["data"]]}
        ),
        "a row twice": with_values(file, lambda plain: {**plain, "data": plain["data"][:1] * 2}),
        "words for numbers": changed(lambda row, place: "os.system"),
        "numbers of 400 digits": changed(lambda row, place: 10**400),
        "a column less": with_values(
            file,
            lambda plain: {
                **plain,
                "columns": [name if name != number else "another" for name in plain["columns"]],
            },
        ),
    }


def address(file: str) -> dict[str, Spoil]:
    """In which store the run of a folder is."""
    return {
        "a list": with_bytes(file, b"[]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
        "no store": with_keys(file, store={}),
        "a store that is a word": with_keys(file, store="os.system"),
        "a call that there is not": with_keys(file, refused=[{"do": "__class__", "with": []}]),
    }


def journal(file: str) -> dict[str, Spoil]:
    """What a run has written down to be tracked."""

    def with_line(line: str) -> Spoil:
        return lambda folder: (folder / file).write_text((folder / file).read_text() + line + "\n")

    return {
        "a call that there is not": with_line('{"do": "__class__", "with": [1, 2, 3, 4]}'),
        "a file of others": with_line('{"do": "files", "with": ["/etc/hostname", null]}'),
        "the way up": with_line('{"do": "files", "with": ["../../secret", null]}'),
        "a list": with_line("[1, 2]"),
        "brackets 100 000 deep": with_line(DEEP.decode()),
    }


def metrics(file: str) -> dict[str, Spoil]:
    """Figures by their names."""
    return {
        "a list": with_bytes(file, b"[]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
        "nothing in it but braces": with_bytes(file, b"{}"),
        "words for numbers": with_keys(file, disagreement="os.system"),
    }


def checkpoint(file: str) -> dict[str, Spoil]:
    """What a run had learned."""

    def about(change: Callable[[Any], Any]) -> Spoil:
        def changed(good: Entries) -> Mapping[str, bytes]:
            said = json.loads(str(np.load(io.BytesIO(good["about.npy"]))))
            return {**good, "about.npy": _npy(np.array(json.dumps(change(said))))}

        return with_entries(file, changed)

    return {
        "nothing about it": about(lambda said: {}),
        "a list about it": about(lambda said: []),
        "another stage": about(lambda said: said | {"stage": 0}),
        "a stage of 999": about(lambda said: said | {"stage": 999}),
        "a stage in words": about(lambda said: said | {"stage": "os.system"}),
        "no digest": about(lambda said: {key: said[key] for key in ("fingerprint", "stage")}),
    }


def counts(file: str) -> dict[str, Spoil]:
    """What a table had counted, with a digest that fits: it holds no secret."""

    def forged(change: Callable[[dict[str, Any]], object]) -> Spoil:
        def spoil(folder: Path) -> None:
            arrays = dict(np.load(folder / file))
            about = json.loads(str(arrays.pop("about")))
            named = {name.removeprefix("explainer/"): array for name, array in arrays.items()}
            change(named)
            arrays = {f"explainer/{name}": array for name, array in named.items()}
            about["digest"] = Checkpoint(folder / file, "ours", seconds=0)._digest(about["stage"], arrays)
            np.savez(folder / file, about=np.array(json.dumps(about)), **arrays)

        return spoil

    def unequal(arrays: dict[str, Any]) -> None:
        arrays["pair"], arrays["count"] = np.zeros(5_000_000, np.int64), np.ones(5_000_000, np.int64)
        for name in ("next_state", "outcome", "continuation"):
            arrays[name] = arrays[name][:1]

    return {
        "arrays of unequal lengths": forged(unequal),
        "counts below 0": forged(lambda arrays: arrays["count"].fill(-5)),
        "events of 7": forged(lambda arrays: arrays["outcome"].fill(7)),
        "pairs that there are not": forged(lambda arrays: arrays["pair"].fill(10**9)),
        "next states of 10^12": forged(lambda arrays: arrays["next_state"].fill(10**12)),
        "no pairs": forged(lambda arrays: arrays.pop("pair")),
    }


def policy(file: str) -> dict[str, Spoil]:
    """What a policy did in every state."""
    return {
        "probabilities above 1": with_entries(
            file, lambda good: {**good, "probabilities.npy": _npy(np.ones((16, 4)))}
        ),
        "a discount of 2": with_entries(file, lambda good: {**good, "discount.npy": _npy(np.array(2.0))}),
    }


def shards(file: str) -> dict[str, Spoil]:
    """The JSON of a dataset."""
    return {
        "a list": with_bytes(file, b"[]"),
        "brackets 100 000 deep": with_bytes(file, DEEP),
        "nothing in the description": with_bytes(file, b"{}"),
        "10^12 shards": with_keys(file, shards=10**12),
        "a space that there is not": with_keys(file, action_space={"kind": "os.system"}),
        "actions without number": with_keys(file, action_space__n=-1),
        "states of objects": with_keys(file, observation_space__dtype="O"),
        "names of other actions": with_keys(file, action_names=["a"]),
        "names that are lists": with_keys(file, action_names=[["a"], [], [], []]),
        "an environment that is a number": with_keys(file, env=3),
        "a run that is a table": with_keys(file, run={}),
        "fewer states than were seen": with_keys(file, observation_space__n=1),
        "10^30 states": with_keys(file, observation_space__n=10**30),
        "lists 400 deep, 16 MB of them": with_bytes(
            file, b"[" + b",".join([b"[" * 400 + b"]" * 400] * 20_000) + b"]"
        ),
        "a bound of a million digits": with_keys(
            file,
            observation_space={
                "kind": "Box",
                "shape": [500],
                "dtype": "float32",
                "low": ["0" * 1_000_000, *["0"] * 499],
                "high": "1",
            },
        ),
        "Dicts 300 deep": with_keys(file, observation_space=_dicts(300, "a")),
        "a Dict of a part without a name": with_keys(file, observation_space=_dicts(1, "")),
        "observations of 20 000 x 20 000": with_keys(
            file,
            observation_space={
                "kind": "Box",
                "shape": [20_000, 20_000],
                "dtype": "float32",
                "low": "0",
                "high": "1",
            },
        ),
    }


def _dicts(depth: int, key: str) -> dict[str, Any]:
    """Dict spaces in each other."""
    space: dict[str, Any] = {"kind": "Discrete", "n": 16, "start": 0, "dtype": "int64"}
    for _ in range(depth):
        space = {"kind": "Dict", "spaces": {key: space}}
    return space


# Parquet


def shard(file: str) -> dict[str, Spoil]:
    """The transitions of a dataset."""

    def stream(*values: int, kind: Any = None) -> Spoil:
        def spoil(folder: Path) -> None:
            table = pq.read_table(folder / file)
            numbers = pa.array(np.resize(np.array(values, kind), len(table)))
            pq.write_table(table.append_column("stream", numbers), folder / file)

        return spoil

    def zeros(folder: Path) -> None:
        schema = pq.read_schema(folder / file)
        columns = [np.zeros(5_000_000, field.type.to_pandas_dtype()) for field in schema]
        pages = {"use_dictionary": False, "data_page_size": 2**30, "max_rows_per_page": 10**9}
        pq.write_table(
            pa.table(columns, schema=schema),
            folder / file,
            row_group_size=5_000_000,
            compression="zstd",
            **pages,
        )
        in_footer(folder / file, pq.read_metadata(folder / file).row_group(0).total_byte_size, 1)

    def fewer_rows(folder: Path) -> None:
        pq.write_table(pa.concat_tables([pq.read_table(folder / file)] * 120), folder / file)
        in_footer(folder / file, pq.read_metadata(folder / file).num_rows, 1)

    def struct(*names: str) -> Spoil:
        def spoil(folder: Path) -> None:
            table = pq.read_table(folder / file)
            seen = pa.StructArray.from_arrays([pa.array(np.zeros(len(table)))] * len(names), names=names)
            for column in ("observation", "next_observation"):
                table = table.set_column(table.schema.get_field_index(column), column, seen)
            pq.write_table(table, folder / file)

        return spoil

    return {
        "a field without a name": struct(""),
        "two fields of one name": struct("a", "a"),
        "a name of 100 000 letters": struct("a" * 100_000),
        "types nested 200 000 deep": lambda folder: _nested(folder / file, 200_000),
        "types nested 1 000 deep": lambda folder: _nested(folder / file, 1_000),
        "a stream of 300 000 000": stream(0, 300_000_000),
        "a stream of 10^15": stream(0, 10**15),
        "a stream below 0": stream(0, -5),
        "a stream of 64 bits": stream(0, 2**64 - 1, kind=np.uint64),
        "5 000 000 rows of zeros, and a footer that lies": zeros,
        "a page of more rows than are claimed": fewer_rows,
    }


def in_footer(path: Path, number: int, instead: int) -> None:
    """Another whole number in the footer of a Parquet file, in as many bytes."""
    content = path.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    old = _varint(2 * number)
    new = bytes([2 * instead | 128, *[128] * (len(old) - 2), 0])
    assert old in content[begin:]
    assert len(old) > 1
    path.write_bytes(content[:begin] + content[begin:].replace(old, new))


def _nested(path: Path, depth: int) -> None:
    """A Parquet file without rows, whose only column is of structs in structs."""
    groups = [_node(b"schema", 0), *[_node(b"a", 1)] * depth]
    nodes = [*groups, b"\x15\x02\x25\x00\x18\x01x\x00"]  # the last one is a number
    footer = b"\x15\x02\x19\xfc" + _varint(len(nodes)) + b"".join(nodes) + b"\x16\x02\x19\x0c\x00"
    path.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def _node(name: bytes, repeated: int) -> bytes:
    """A type that holds one other, in Thrift's compact protocol."""
    needed = b"\x35\x00\x18" if repeated else b"\x48"
    return needed + bytes([len(name)]) + name + b"\x15\x02\x00"


def _varint(number: int) -> bytes:
    """A number in as few bytes as Thrift takes for it."""
    parts = [number >> shift & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([*(part | 128 for part in parts[:-1]), parts[-1]])


def question(file: str) -> dict[str, Spoil]:
    """A question to a served model."""

    def rows(*data: list[Any], columns: tuple[str, ...] = ("state", "action", "foil")) -> Spoil:
        asked = {"dataframe_split": {"columns": list(columns), "data": list(data)}}
        return with_bytes(file, json.dumps(asked).encode())

    return {
        "10 001 rows": rows(*[[0, 0, None]] * 10_001),
        "no rows": rows(),
        "a state of 400 digits": rows([10**400, 0, None]),
        "a state of 1e300": rows([1e300, 0, None]),
        "a state that is no number": rows([float("nan"), 0, None]),
        "a state beyond the last": rows([16, 0, None]),
        "a state below 0": rows([-1, 0, None]),
        "a state that is code": rows([f"__import__('os').mkdir('{MARKER}')", 0, None]),
        "a state 50 lists deep": rows([json.loads("[" * 50 + "]" * 50), 0, None]),
        "an action beyond the last": rows([0, 4, None]),
        "a foil that is a list": rows([0, 0, [1]]),
        "a column twice": rows([0, 0, 0], columns=("state", "action", "action")),
        "a column less": rows([0, 0], columns=("state", "foil")),
        "brackets 100 000 deep": with_bytes(file, DEEP),
        "a list": with_bytes(file, b"[]"),
    }


# Zip files


def with_entries(file: str, change: Callable[[Entries], Mapping[str, bytes]]) -> Spoil:
    """Other members of a zip file."""

    def spoil(folder: Path) -> None:
        with zipfile.ZipFile(folder / file) as archive:
            good = {name: archive.read(name) for name in archive.namelist()}
        with zipfile.ZipFile(folder / file, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in change(good).items():
                archive.writestr(name, content)

    return spoil


def arrays(file: str, name: str) -> dict[str, Spoil]:
    """A file of arrays, of which one has this name."""
    member = f"{name}.npy"

    def put(content: bytes, name: str = member) -> Spoil:
        return with_entries(file, lambda good: {**good, name: content})

    def changed(change: Callable[[Any], Any]) -> Spoil:
        return with_entries(
            file, lambda good: {**good, member: _npy(change(np.load(io.BytesIO(good[member]))))}
        )

    return {
        "an array of objects": put(_npy(np.array([Bomb()], dtype=object))),
        "a pickle among the arrays": put(BOMB),
        "an array that swells": changed(lambda array: np.zeros(12_500_000)),
        "a shape of 10^12": put(_claiming((10**12,))),
        "a shape of 0 x 10^12": put(_claiming((0, 10**12, 4))),
        OUTSIDE: put(_npy(np.zeros(1)), f"../../{MARKER}.npy"),
        "words for numbers": put(_npy(np.array("words"))),
        "another shape": changed(lambda array: array[None]),
        "an array less": with_entries(file, lambda good: {n: c for n, c in good.items() if n != member}),
        "no finite numbers": changed(lambda array: np.full(array.shape, np.nan)),
        **({"probabilities of 5": changed(lambda array: array * 0 + 5)} if name == "expected" else {}),
    }


def units(file: str) -> dict[str, Spoil]:
    """The arrays of an explainer with a network of returns."""
    name = "return.unit.npy"
    return {
        "returns in units of 0": with_entries(file, lambda good: {**good, name: _npy(np.zeros(3, "f"))}),
        "returns in units of -1": with_entries(file, lambda good: {**good, name: _npy(-np.ones(3, "f"))}),
    }


def _npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def _claiming(shape: tuple[int, ...]) -> bytes:
    """An array that says to be larger than it is."""
    file = io.BytesIO()
    header = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)
    return file.getvalue()


def pictures(file: str) -> dict[str, Spoil]:
    """Recorded episodes, with pictures."""

    def of(content: bytes) -> Spoil:
        ends = np.arange(1, 7) * len(content)
        frames = np.frombuffer(content * 6, np.uint8)
        return with_entries(
            file, lambda good: {**good, "frames.npy": _npy(frames), "frame_ends.npy": _npy(ends)}
        )

    postscript = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\n(ran) (w) file\n"
    return {
        "PostScript for pictures": of(postscript),
        "pickles for pictures": of(BOMB),
        "pictures that end before they begin": with_entries(
            file, lambda good: {**good, "frame_ends.npy": _npy(np.array([5, 4, 3, 2, 1, 0]))}
        ),
        "episodes that begin nowhere": with_entries(
            file, lambda good: {**good, "begins.npy": _npy(np.array([0, 10**12]))}
        ),
    }


def agent(file: str) -> dict[str, Spoil]:
    """The zip of an agent."""

    def put(name: str, content: bytes) -> Spoil:
        return with_entries(file, lambda good: {**good, name: content})

    def saved(weights: Any) -> bytes:
        written = io.BytesIO()
        torch.save(weights, written)
        return written.getvalue()

    def zipped(pickled: bytes) -> bytes:
        written = io.BytesIO()
        with zipfile.ZipFile(written, "w") as archive:
            archive.writestr("archive/data.pkl", pickled)
        return written.getvalue()

    return {
        **{f"weights: {name}": put("policy.pth", zipped(content)) for name, content in ENDLESS.items()},
        "weights of 8 bits": put("policy.pth", saved({"a": torch.zeros(1).to(torch.float8_e4m3fn)})),
        "weights within weights": put("policy.pth", saved({"a": {"b": torch.zeros(1)}})),
        SETTINGS: with_entries(file, _poisoned),
        OTHER_PICKLES: put("pytorch_variables.pth", BOMB),
        "a pickle as policy.pth": put("policy.pth", BOMB),
        "objects among the weights": put("policy.pth", saved({"a": Bomb()})),
        "weights that swell": put("policy.pth", bytes(30_000_000)),
        "weights of 10^12 numbers": put("policy.pth", saved({"a": torch.zeros(1).expand(10**6, 10**6)})),
        OUTSIDE: put(f"../../{MARKER}", b"1"),
        "settings that are a list": put("data", b"[]"),
        "settings 100 000 deep": put("data", DEEP),
    }


def _poisoned(good: Entries) -> Entries:
    """A bomb for every pickle in the settings."""
    settings = json.loads(good["data"])
    for value in settings.values():
        if isinstance(value, dict) and ":serialized:" in value:
            value[":serialized:"] = base64.b64encode(BOMB).decode()
    return {**good, "data": json.dumps(settings).encode()}


# Pickles and folders


class Hidden:
    """Of no known library, with a bomb inside."""

    def __reduce__(self) -> tuple[Any, tuple[Any]]:
        return Hidden, (Bomb(),)


SHARED = b")" + b"q\x00h\x00\x86" * 60  # a tuple of two of the same, of two of the same, and so on
ENDLESS = {
    "shared tuples as a key": b"\x80\x02}" + SHARED + b"K\x01s.",
    "shared tuples in a set": b"\x80\x04\x8f(" + SHARED + b"\x90.",
    "a deep key": b"\x80\x02})" + b"\x85" * 200_000 + b"K\x01s.",
    "a bytearray of 3 GB by its length": b"\x80\x05\x96" + (3 * 2**30).to_bytes(8, "little") + b".",
    "a bytearray of 1 GB by a call": b"\x80\x02cbuiltins\nbytearray\nJ\x00\x00\x00\x40\x85R.",
    "a million lists": b"\x80\x02" + b"]" * 1_000_000 + b".",
}
"""Pickles that take for ever, or all of the memory, if they are read as usual."""


def pickles(file: str) -> dict[str, Spoil]:
    """A pickle in place of another."""
    return {
        **{name: with_bytes(file, content) for name, content in ENDLESS.items()},
        "code deep inside": with_bytes(file, pickle.dumps([{"a": Hidden()}])),
        "code of NumPy's": with_bytes(file, b"cnumpy\nload\n(S'x'\ntR."),
        "objects by the thousand million": with_bytes(file, b"\x80\x04Nr\xff\xff\xff\x7f."),
        "a plain number": with_bytes(file, pickle.dumps(1)),
    }


def statistics(file: str) -> dict[str, Spoil]:
    """The pickle of a VecNormalize."""

    def epsilon(folder: Path) -> None:
        good = (folder / file).read_bytes()
        place = good.index(b"epsilon") + len(b"epsilon")
        end = good.index(b"G", place)  # the float that follows
        many = pickle.dumps(10**400, 4)[2:-1].split(b"\x8a", 1)[1]
        (folder / file).write_bytes(good[:end] + b"\x8a" + many + good[end + 9 :])

    return {**pickles(file), "an epsilon of 10^400": epsilon}


LOADER, PICKLED = "an untrusted loader_module", "a pickled python_model"


def model(file: str) -> dict[str, Spoil]:
    """The folder of an MLflow model, with its MLmodel."""

    def loader(folder: Path) -> None:
        with_keys(file, flavors__python_function={"loader_module": "stranger", "data": "data"})(folder)
        (folder / file).with_name("stranger.py").write_text(MODULE)

    def pickled(folder: Path) -> None:
        flavor = {"loader_module": "mlflow.pyfunc.model", "python_model": "python_model.pkl"}
        with_keys(file, flavors__python_function=flavor)(folder)
        (folder / file).with_name("python_model.pkl").write_bytes(BOMB)

    def twice(folder: Path) -> None:
        shutil.copytree(folder / "model" / "data", folder / "model" / "more")

    return {
        LOADER: loader,
        PICKLED: pickled,
        "two explainers": twice,
        "no explainer": lambda folder: shutil.rmtree(folder / "model" / "data"),
    }
