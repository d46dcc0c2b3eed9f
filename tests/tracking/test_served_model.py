"""Explainers as MLflow models: loaded elsewhere, registered, and asked over HTTP."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import time
import tracemalloc
import urllib.error
import urllib.request
import zipfile
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.exceptions import MlflowException

from tests.support import Compose, small_mdp
from tests.support.commands import ROOT, fork_server
from tests.support.sentences import describe, paragraph
from tests.support.small_mdp import NUM_ACTIONS, NUM_STATES
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import PairTable
from tpd.run.parts import build
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.store import explainers
from tpd.tracking import scoring_server
from tpd.tracking.mlflow_runs import MlflowTracking
from tpd.tracking.served_model import _load_pyfunc
from tpd.tracking.served_requests import MOST_ROWS
from tpd.tracking.served_values import RequestError

NAMES = ["odd", "even", "first odd"]
HORIZON = 4
SECONDS_TO_START = 90
NUMBERED = {"state": 0, "action": 0, **{str(number): 0 for number in range(200_000)}}
WIDE = {
    "dataframe_split": {"columns": list(NUMBERED), "data": [list(NUMBERED.values())]},
    "dataframe_records": [{"state": 0, "action": 0}, NUMBERED],
    "instances": [NUMBERED],
    "inputs": {name: [0] for name in NUMBERED},
}
"""Questions of 200,000 columns."""


@dataclass(frozen=True)
class RegisteredModel:
    """A store with a registered explainer."""

    uri: str
    explainer: Explainer
    folder: Path
    """Of the model"""


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> RegisteredModel:
    """What is exact of a small MDP, but for one pair that is not known, as version 1 of `small`."""
    folder = tmp_path_factory.mktemp("served")
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    exact = ExactSolution(env, policy, outcomes, horizon=HORIZON).table()
    known = PairTable(
        exact.num_actions, exact.pairs[:-1], exact.expected[:-1], np.full(len(exact.pairs) - 1, 7.0)
    )
    explainers.save(Explainer(known, policy, outcomes.legend), env, folder / "explainer")
    uri = f"sqlite:///{folder}/mlflow.db"
    tracking = MlflowTracking(uri=uri, experiment="small", register="small")
    with tracking.open("run", {}, {"seed": "3"}) as run:
        run.model(folder / "explainer", "explainer")
    (version,) = MlflowClient(uri).search_model_versions("name='small'")
    model = mlflow.artifacts.download_artifacts(f"models:/small/{version.version}", tracking_uri=uri)
    return RegisteredModel(uri, explainers.load(folder / "explainer"), Path(model))


@pytest.fixture(scope="module")
def server(registered: RegisteredModel) -> Iterator[str]:
    """The address of `mlflow models serve`, on a free port of this machine alone."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = ["-m", "mlflow", "models", "serve", "--env-manager", "local", "--host", "127.0.0.1"]
    process = subprocess.Popen(
        [sys.executable, *command, "--port", str(port), "--model-uri", "models:/small@latest"],
        env={
            **os.environ,
            "MLFLOW_TRACKING_URI": registered.uri,
            "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        },
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        _wait_for(f"{address}/ping", process)
        yield address
    finally:
        os.killpg(process.pid, 15)
        process.wait()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while True:
        try:
            urllib.request.urlopen(address, timeout=5).close()
        except OSError:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        else:
            return


def post(address: str, question: Any, kind: str = "application/json") -> tuple[int, Any]:
    """Status and answer, which has to be JSON without NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    data = question if isinstance(question, bytes) else json.dumps(question).encode()
    request = urllib.request.Request(f"{address}/invocations", data, {"Content-Type": kind}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read(), parse_constant=refuse)
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read(), parse_constant=refuse)


def ask(registered: RegisteredModel, **columns: list[Any]) -> pd.DataFrame:
    """Ask in this process."""
    return _load_pyfunc(str(registered.folder / "data" / "explainer")).predict(pd.DataFrame(columns))


def of(answer: pd.DataFrame, row: int, role: str) -> pd.DataFrame:
    return answer[(answer["row"] == row) & (answer["role"] == role)]


# Over HTTP


def test_expected_outcomes_and_contrasts_are_served(server: str, registered: RegisteredModel) -> None:
    rows = [{"state": 0, "action": 0, "foil": 1}, {"state": 1, "action": 1}]
    status, answer = post(server, {"dataframe_records": rows})
    assert status == 200
    answered = pd.DataFrame(answer["predictions"])
    facts = registered.explainer.explain(np.array([0, 1]), np.array([0, 1]))
    foil = registered.explainer.explain(np.array([0]), np.array([1]))
    contrast = facts[:1] - foil
    for row, role, expected, returns in (
        (0, "fact", facts.expected[0], facts.expected_return[0]),
        (0, "foil", foil.expected[0], foil.expected_return[0]),
        (0, "contrast", contrast.expected[0], contrast.expected_return[0]),
        (1, "fact", facts.expected[1], facts.expected_return[1]),
    ):
        found = of(answered, row, role)
        np.testing.assert_allclose(found[NAMES], expected, atol=1e-7)
        np.testing.assert_allclose(found["return"], returns, atol=1e-6)
        assert list(found["step"]) == list(range(HORIZON))
    assert len(answered) == 4 * HORIZON


def test_sentences_are_served_if_they_are_asked_for(server: str, registered: RegisteredModel) -> None:
    rows = [{"state": 0, "action": 0, "foil": 1}, {"state": 1, "action": 1}]
    status, answer = post(server, {"dataframe_records": rows, "params": {"text": True}})
    assert status == 200
    said = [line["text"] for line in answer["predictions"] if line["text"] is not None]
    both = registered.explainer.explain(np.array([0, 0, 1]), np.array([0, 1, 1]))
    own = f"action {registered.explainer.policy.action(np.array([0]))[0]}"
    assert said == [
        paragraph(both[:1] - both[1:2], 0, "action 0", "action 1", own),
        describe(both, 2, "action 1"),
    ]
    for wrong in ("text", {"text": "yes"}):
        status, answer = post(server, {"dataframe_records": rows, "params": wrong})
        assert status == 400, answer


def test_the_example_of_the_model_can_be_posted(server: str, registered: RegisteredModel) -> None:
    status, answer = post(server, (registered.folder / "serving_input_example.json").read_bytes())
    assert status == 200
    roles = {line["role"] for line in answer["predictions"]}
    assert roles == {"fact", "foil", "contrast"}
    assert all(line["odd"] is not None for line in answer["predictions"])


def test_what_is_unknown_is_null(server: str, registered: RegisteredModel) -> None:
    states, actions = np.divmod(np.arange(NUM_STATES * NUM_ACTIONS), NUM_ACTIONS)
    unknown = int(np.flatnonzero(registered.explainer.explain(states, actions).support == 0)[0])
    question = {"state": int(states[unknown]), "action": int(actions[unknown])}
    status, answer = post(server, {"dataframe_records": [question]})
    assert status == 200
    assert {line["support"] for line in answer["predictions"]} == {0}
    assert {line["odd"] for line in answer["predictions"]} == {None}


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [[0, 0, None], [0, 9, None]],
            "row 1, column action: 9 is not an action; they are numbered from 0 to 2",
        ),
        ([[0, 0, 1], [0, 0, -1]], "row 1, column foil: -1 is not an action"),
        ([[77, 0, None]], "row 0, column state: 77 is not a state; they are numbered from 0 to 5"),
        ([["x", 0, None]], "row 0, column state: 'x' is not a whole number"),
        ([[0, 0, None], [None, 0, None]], "row 1, column state: nan is not a whole number"),
        ([[0, 0.5, None]], "row 0, column action: 0.5 is not a whole number"),
        ([[0, True, None]], "row 0, column action: True is not a whole number"),
        ([[[0, 1], 0, None]], "row 0, column state: [0, 1] is not a whole number"),
        ([[0, 0, None]] * (MOST_ROWS + 1), "10001 rows; send 1 to 10,000 at a time"),
        ([], "0 rows; send 1 to 10,000 at a time"),
    ],
)
def test_a_bad_row_is_refused_by_row_and_column(server: str, rows: list[Any], message: str) -> None:
    columns = ["state", "action", "foil"]
    status, answer = post(server, {"dataframe_split": {"columns": columns, "data": rows}})
    assert status == 400
    assert message in answer["message"]
    assert "Traceback" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"dataframe_records": [{"state": 0}]}, "'action'"),
        ({"rows": []}, "dataframe_records"),
        (b"{", "the request is not valid JSON"),
        ({"instances": [1]}, "instances: expected a list of objects"),
        ({"dataframe_records": {"state": [0]}}, "dataframe_records: expected a list of objects"),
        ({"inputs": [[1, 2], [3]]}, "inputs: expected a list of objects"),
        ({"inputs": {"state": [0, 1], "action": [0]}}, "inputs: the columns have different lengths"),
        ({"inputs": {"state": 0, "action": [0]}}, "inputs: state must be a list"),
        ({"dataframe_split": {"columns": ["state"], "data": [[0, 1]]}}, "row 0 must be a list of 1 values"),
        ({"dataframe_split": {"columns": ["state", "state"], "data": []}}, "column state is duplicated"),
        *(({form: WIDE[form]}, f"{form}: there are more than 100 columns") for form in WIDE),
        ({"prompt": "hello"}, "dataframe_records"),
        ({"instances": [[0, 0], [1]]}, "instances: expected a list of objects"),
        ({"instances": {"state": [0], "action": [[0], [1, 2]]}}, "instances: the columns have different"),
        (
            {"inputs": {"state": [[0, 1], [2]], "action": [0, 0]}},
            "row 0, column state: [0, 1] is not a whole",
        ),
        ({"inputs": [[[0], [0, 1]], "x", None]}, "inputs: expected a list of objects"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"dataframe_records": ' + b"[" * 100_000, "nested too deeply"),
        (b" " * 5_000_000, "the request has 5,000,000 bytes; send at most 4,194,304"),
    ],
)
def test_a_malformed_question_is_refused(server: str, question: Any, message: str) -> None:
    status, answer = post(server, question)
    assert status == 400
    assert message in answer["message"]
    assert "Traceback" not in json.dumps(answer)


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (b"state,action\n0,left\n", "text/csv", "row 0, column action: 'left' is not a whole number"),
        (b"", "text/csv", "the request is not valid CSV"),
        (b'"', "text/csv", "the request is not valid CSV"),
        (b",".join([b"a"] * 50_000) + b"\n", "text/csv", "more than 100 columns"),
        (b"\n" + b"a," * 100_000 + b"\n" + b"1," * 100_000 + b"\n", "text/csv", "more than 100 columns"),
        (b"\r" + b"a," * 100_000 + b"\r", "text/csv", "more than 100 columns"),
        (b"state,action\n" + b"1," * 300_000 + b"\n", "text/csv", "row 0 has 300001 values"),
        (b"state,action\n0\n", "text/csv", "row 0 has 1 values, but there are 2 columns"),
        (b"state,action\n" + b"0,0\n" * 500_000, "text/csv", "more than 10,000 rows"),
        (b"state,state,action\n0,0,1\n", "text/csv", "column state is duplicated"),
        (b"state,action\n1e400,0\n", "text/csv", "inf is not a whole number"),
        (b"state,action\n,0\n", "text/csv", "row 0, column state: None is not a whole number"),
        (
            b'{"dataframe_records": [{"state": ' + b"9" * 5000 + b"}]}",
            "application/json",
            "is not valid JSON",
        ),
        (b"state,action\n" + b"1" * 100_000 + b"x,0\n", "text/csv", "is not a whole number"),
        (b"PAR1", "application/vnd.apache.parquet", "send JSON or CSV"),
        (b"{}", "", "send JSON or CSV"),
        (b"{}", "application/json; charset=latin-1", "the charset of the request must be utf-8"),
        (b"state\n\xff", "text/csv", "the request is not valid CSV"),
    ],
)
def test_other_kinds_of_questions_are_refused_with_the_reason(
    server: str, content: bytes, kind: str, message: str
) -> None:
    status, answer = post(server, content, kind)
    assert status == 400
    assert message in answer["message"]
    assert "Traceback" not in json.dumps(answer)


@pytest.mark.parametrize("form", ["inputs", "instances", "dataframe_records"])
def test_every_form_of_json_gets_the_same_answer(server: str, form: str) -> None:
    split = {"dataframe_split": {"columns": ["state", "action", "note"], "data": [[0, 0, "a"], [1, 1, "b"]]}}
    rows = [{"state": 0, "action": 0}, {"state": 1, "action": 1, "note": 3}]
    content = {"state": [0, 1], "action": [0, 1]} if form == "inputs" else rows
    status, answer = post(server, {form: content})
    assert status == 200
    assert (status, answer) == post(server, split)


def test_many_different_columns_take_neither_time_nor_memory(registered: RegisteredModel) -> None:
    """20,000 rows with a column of their own each made a table of 400 million cells."""
    records = [{f"column {number}": 0} for number in range(20_000)]
    model = mlflow.pyfunc.load_model(str(registered.folder))
    tracemalloc.start()
    with pytest.raises(MlflowException, match="missing inputs"):
        scoring_server.answer(
            json.dumps({"dataframe_records": records}).encode(), "application/json", model, None
        )
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50e6


def test_of_a_large_request_no_more_is_kept_than_may_be_asked() -> None:
    class Sent:
        """400 MB, one after the other."""

        async def stream(self) -> AsyncIterator[bytes]:
            for _ in range(400):
                yield bytes(10**6)

    async def handle(request: Any) -> None:
        raise AssertionError("it is not handled")

    tracemalloc.start()
    answer = asyncio.run(scoring_server._catch(handle)(Sent()))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code == 400
    assert "the request has 400,000,000 bytes" in json.loads(answer.body)["message"]
    assert peak < 20e6


def test_a_table_in_csv_is_answered_as_in_json(server: str) -> None:
    rows = {"dataframe_split": {"columns": ["state", "action"], "data": [[0, 0], [1, 1]]}}
    for table in (
        b"state,action\n0,0\n1,1\n",
        b'\xef\xbb\xbf\n"state", action,note,foil\r\n0.0,0,"a,\nb",\r\n\r\n 1,1e0,,NaN',
    ):
        assert post(server, table, "text/csv") == post(server, rows)


# As a model


def test_it_loads_where_tpd_was_not_imported(registered: RegisteredModel, tmp_path: Path) -> None:
    script = tmp_path / "elsewhere.py"
    script.write_text("""
import sys, mlflow, pandas as pd
assert not any(name.startswith("tpd") for name in sys.modules)
for alias in ("latest", "seed-3"):
    model = mlflow.pyfunc.load_model(f"models:/small@{alias}")
    answer = model.predict(pd.DataFrame({"state": [0], "action": [0], "foil": [1]}))
print(answer.to_json(orient="records"))
""")
    environment = {**os.environ, "MLFLOW_TRACKING_URI": registered.uri, "PYTHONPATH": str(ROOT)}
    done = fork_server().run(script, [], registered.folder, environment)
    assert done.returncode == 0, done.stderr
    answer = pd.DataFrame(json.loads(done.stdout))
    expected = registered.explainer.explain(np.array([0]), np.array([0])).expected[0]
    np.testing.assert_allclose(of(answer, 0, "fact")[NAMES], expected, atol=1e-7)


def test_no_file_of_it_is_a_pickle(registered: RegisteredModel) -> None:
    files = [path for path in registered.folder.rglob("*") if path.is_file()]
    assert {path.name for path in files} >= {"MLmodel", "arrays.npz", "explainer.json", "input_example.json"}
    for path in files:
        names = zipfile.ZipFile(path).namelist() if path.suffix == ".npz" else [path.name]
        assert not [name for name in names if name.endswith((".pkl", ".pickle", ".pt", ".bin"))]
        assert path.suffix == ".npz" or path.read_text()
    with np.load(registered.folder / "data" / "explainer" / "arrays.npz", allow_pickle=False) as arrays:
        assert all(array.dtype != object for array in arrays.values())


def test_it_says_what_it_is_asked_and_answers(registered: RegisteredModel) -> None:
    info = mlflow.models.get_model_info(str(registered.folder))
    assert info.signature.inputs.required_input_names() == ["state", "action"]
    assert info.signature.inputs.optional_input_names() == ["foil"]
    answer = ask(registered, state=[0], action=[0], foil=[1])
    assert info.signature.outputs.input_names() == [*answer.columns, "text"]
    assert info.signature.outputs.optional_input_names()[-1] == "text"
    assert info.metadata is not None
    assert info.metadata["action"] == "a whole number from 0 to 2"


def test_contrasts_are_as_known_as_the_less_known_of_both(registered: RegisteredModel) -> None:
    states, actions = np.divmod(np.arange(NUM_STATES * NUM_ACTIONS), NUM_ACTIONS)
    unknown = int(np.flatnonzero(registered.explainer.explain(states, actions).support == 0)[0])
    state, foil = int(states[unknown]), int(actions[unknown])
    answer = ask(registered, state=[state, state], action=[foil - 1] * 2, foil=[foil, None])
    assert of(answer, 0, "fact")["odd"].notna().all()
    assert of(answer, 0, "contrast")[[*NAMES, "return"]].isna().all(axis=None)
    assert (of(answer, 0, "contrast")["support"] == 0).all()
    assert list(dict.fromkeys(zip(answer["row"], answer["role"], strict=True))) == [
        (0, "fact"),
        (0, "foil"),
        (0, "contrast"),
        (1, "fact"),
    ]


def test_an_answer_that_would_be_too_long_is_refused(registered: RegisteredModel) -> None:
    asked = _load_pyfunc(str(registered.folder / "data" / "explainer")).questions.read(
        pd.DataFrame({"state": [0, 0], "action": [0, 0], "foil": [None, 1]})
    )
    asked.check_size(50_000, outcomes=5)
    with pytest.raises(RequestError, match="would have 1,000,020 values; request at most"):
        asked.check_size(50_001, outcomes=5)


def test_what_is_exact_needs_no_support(tmp_path: Path) -> None:
    env, policy, outcomes = small_mdp.environment(), small_mdp.policy(), small_mdp.outcomes()
    exact = ExactSolution(env, policy, outcomes, horizon=HORIZON)
    explainers.save(Explainer(exact, policy, outcomes.legend), env, tmp_path)
    answer = _load_pyfunc(str(tmp_path)).predict(pd.DataFrame({"state": [0], "action": [0]}))
    assert answer["support"].isna().all()
    assert answer[NAMES].notna().all(axis=None)


def test_a_second_version_takes_over_the_alias_of_its_seed(
    tmp_path: Path, registered: RegisteredModel
) -> None:
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    tracking = MlflowTracking(uri=uri, experiment="small", register="small")
    for seed in ("0", "1", "0"):
        with tracking.open("run", {}, {"seed": seed}) as run:
            run.model(registered.folder / "data" / "explainer", "explainer")
    failed = tracking.open("run", {}, {"seed": "2"})
    failed.model(registered.folder / "data" / "explainer", "explainer")
    failed.end("FAILED")
    client = MlflowClient(uri)
    versions = {
        alias: client.get_model_version_by_alias("small", alias).version for alias in ("seed-0", "seed-1")
    }
    assert {alias: int(version) for alias, version in versions.items()} == {"seed-0": 3, "seed-1": 2}
    assert int(client.get_model_version_by_alias("small", "latest").version) == 3


@pytest.mark.parametrize("name", ["", "a/b", "a:b", "o'brien", 3])
def test_names_that_cannot_be_registered_are_refused(name: Any) -> None:
    with pytest.raises(ValueError, match="register must be a name"):
        MlflowTracking(uri="sqlite:///mlflow.db", experiment="small", register=name)


# Networks


@pytest.mark.parametrize(
    ("env", "policy", "bad", "message"),
    [
        (
            "cart_pole",
            "left",
            ([0.0] * 3, 0),
            "row 1, column state: expected a list of 4 numbers, got a list of 3 numbers",
        ),
        (
            "cart_pole",
            "left",
            ([0, 0, 0, float("nan")], 0),
            "row 1, column state: entry 3 is nan, which is not finite",
        ),
        (
            "cart_pole",
            "left",
            ([0, 0, 0, 1e300], 0),
            "row 1, column state: entry 3 is inf, which is not finite",
        ),
        (
            "cart_pole",
            "left",
            ([0, 0, 0, "1"], 0),
            "row 1, column state: [0, 0, 0, '1'] is not a list of numbers",
        ),
        (
            "cart_pole",
            "left",
            ([[0], [0, 0]], 0),
            "row 1, column state: [[0], [0, 0]] is not a list of numbers",
        ),
        (
            "cart_pole",
            "left",
            ([0.0] * 4, 2),
            "row 1, column action: 2 is not an action; they are numbered from 0 to 1",
        ),
        (
            "pendulum",
            "swing",
            ([0.0] * 3, [2.5]),
            "row 1, column action: entry 0 is 2.5, which is not in [-2, 2]",
        ),
        (
            "pendulum",
            "swing",
            ([0.0] * 3, 1.0),
            "row 1, column action: expected a list of 1 numbers, got a single number",
        ),
    ],
)
@pytest.mark.parametrize("explainer", ["network", "auto"])
def test_networks_are_asked_with_vectors(
    env: str,
    policy: str,
    bad: tuple[Any, Any],
    message: str,
    explainer: str,
    tmp_path: Path,
    compose_config: Compose,
) -> None:
    function = f"policy.function={{_target_: policies_of_a_user.{policy}, _partial_: true}}"
    chosen = ["policy=function", function, f"explainer={explainer}", "training=agent", "evaluation=none"]
    parts = build(compose_config(f"env={env}", *chosen, "explainer.hidden=[8]", "explainer.horizon=5"))
    rng, exploration = np.random.default_rng(0), Exploration(0.5)
    (seen,) = collect(parts.env, parts.trainer.policy, rng, steps=20, exploration=exploration, num_envs=5)
    parts.explainer.predictor.update(seen)  # type: ignore[attr-defined]
    explainers.save(parts.explainer, parts.env, tmp_path)
    model = _load_pyfunc(str(tmp_path))
    example = model.questions.example
    answer = model.predict(example)
    states, foils = (np.array(example[name].tolist(), dtype=np.float32) for name in ("state", "foil"))
    foils = foils.astype(np.int64) if env == "cart_pole" else foils
    expected = parts.explainer.explain(states, foils).expected[0]
    np.testing.assert_allclose(of(answer, 0, "foil")[list(parts.outcomes.legend.names)], expected, atol=1e-6)
    np.testing.assert_allclose(states[0], seen.observation.mean(axis=0), atol=1e-4)
    rows = pd.DataFrame([*example[["state", "action"]].to_numpy().tolist(), bad], columns=["state", "action"])
    with pytest.raises(MlflowException) as refused:
        model.predict(rows)
    assert refused.value.message == message
    assert refused.value.error_code == "INVALID_PARAMETER_VALUE"
