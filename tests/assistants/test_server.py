"""The server as assistants use it: over stdio, in a process of its own."""

import base64
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from mcp.types import ImageContent
from PIL import Image
from stable_baselines3 import DQN

import tpd
from tests.assistants.conversation import START, Call, Conversation, converse, environment, refused, told
from tests.support.commands import ROOT, tpd_run
from tpd.assistants.library import Library
from tpd.store import saved_runs
from tpd.store.descriptions import UntrustedError

AGENT = ROOT.parent / "shared" / "agents" / "qrdqn-LunarLander-v2.zip"
QUICK = ["explainer=network", "explainer.fit_updates=20", "evaluation=none"]
JUDGED = [*QUICK[:2], "evaluation=forecasts", "evaluation.forecast_episodes=20"]
NOISY = '''
import os
import gymnasium as gym
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Noisy(CartPoleEnv):
    """Prints at every step, as environments do."""
    action_names = ("push left", "push right")
    def step(self, action):
        print("noise of Python")
        os.write(1, b"noise of C" + bytes([10]))
        return super().step(action)

gym.register("Noisy-v0", entry_point="noisy_world:Noisy", max_episode_steps=60)
'''
TRUST = "trust=[noisy_world]"
HERE = {"run": "first/cart", "episode": 0, "step": 2}
CALLS = [
    Call("list_runs", {}),
    Call("describe_run", {"run": "first/cart"}),
    Call("moments", {"run": "first/cart", "most": 4}),
    Call("explain", HERE),
    Call("contrast", {**HERE, "action": "push left", "foil": "push right"}),
    Call("by_step", {**HERE, "outcome": "reward"}),
    Call("what_if", {**HERE, "outcome": "reward", "rewards": {"reward": 2}}),
    Call("drivers", HERE),
    Call("quality", {"run": "first/cart"}),
    Call("plot", HERE),
    Call("explain", {"run": "first/cart", "state": [0.0, 0.0, 0.05, 0.0]}),
]
REFUSED = {
    "there is no run 'firts/cart'.*did you mean first/cart": Call("explain", {**HERE, "run": "firts/cart"}),
    "there is no run '../outside'": Call("describe_run", {"run": "../outside"}),
    "there is no run 'link'": Call("describe_run", {"run": "link"}),
    "there is no run 'inner'": Call("describe_run", {"run": "inner"}),
    "there is no run '/etc'": Call("describe_run", {"run": "/etc"}),
    r"there is no run 'a\\x00b'": Call("describe_run", {"run": "a\0b"}),
    "run: String should have at most 500": Call("describe_run", {"run": "x" * 10_000}),
    "run: Input should be a valid string": Call("describe_run", {"run": 3}),
    "run: Field required": Call("describe_run", {}),
    "episode: Input should be a valid integer": Call("explain", {**HERE, "episode": "first"}),
    "step: Input should be less than": Call("explain", {**HERE, "step": 10**30}),
    "episode 0 has no step 1000": Call("explain", {**HERE, "step": 1000}),
    "there is no episode 77": Call("explain", {**HERE, "episode": 77}),
    "rollouts: Input should be less than": Call("explain", {**HERE, "rollouts": 10**12}),
    "or state, not both": Call("explain", {**HERE, "state": [0, 0, 0, 0]}),
    "pass episode and step of a recorded episode": Call("explain", {"run": "first/cart"}),
    "must have shape": Call("explain", {"run": "first/cart", "state": [[[]]]}),
    "has no action 'fly'": Call("explain", {**HERE, "action": "fly"}),
    "has no action": Call("contrast", {**HERE, "foil": 10**30}),
    "explain has no argument 'trust'": Call("explain", {**HERE, "trust": ["os"]}),
    "there is no outcome 'x'": Call("by_step", {**HERE, "outcome": "x"}),
    "is not an outcome": Call("what_if", {**HERE, "outcome": "x"}),
    "rewards.reward must lie in": Call("what_if", {**HERE, "rewards": {"reward": 1e300}}),
    "pass an outcome, or rewards": Call("what_if", HERE),
    "most: Input should be less than": Call("moments", {"run": "first/cart", "most": 10**9}),
    "there is no tool 'shell'": Call("shell", {"command": "ls"}),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs with one run, of an environment that prints."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "noisy_world.py").write_text(NOISY)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        model = DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu")
        explainer = tpd.Explainer(model, env="noisy_world:Noisy-v0", horizon=8)
        explainer.play(seeds=range(3))
        explainer.learn(1000, overrides=JUDGED, progress=False).save(folder / "first" / "cart")
    return folder


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def session(runs: Path) -> Conversation:
    """Good and hostile calls, in one process."""
    (runs / "link").symlink_to(runs.parent / "outside")
    (runs / "inner").mkdir()
    (runs / "inner" / "explainer").symlink_to(runs.parent / "outside" / "explainer")
    (runs.parent / "outside" / "explainer").mkdir(parents=True)
    (runs.parent / "outside" / "explainer" / "explainer.json").write_text("{}")
    before = files(runs)
    said = converse([str(runs), TRUST], [*CALLS, *REFUSED.values()], runs)
    assert files(runs) == before
    return said


def test_a_session_from_the_list_of_runs_to_a_picture(runs: Path, session: Conversation) -> None:
    assert all(tool.description and tool.annotations for tool in session.tools)
    assert all(tool.annotations.read_only_hint for tool in session.tools if tool.annotations)
    listed, described, moments, why, contrast, steps, what_if, drivers, quality, plot, learned = (
        session.results[: len(CALLS)]
    )
    assert [entry["run"] for entry in told(listed)["runs"]] == ["first/cart"]
    about = told(described)
    assert about["env"] == "noisy_world:Noisy-v0"
    assert about["horizon"] == 8
    assert len(about["episodes"]) == about["episodes_recorded"] == 3
    assert {(one["episode"], one["step"]) for one in told(moments)["moments"]}
    _check_numbers(runs, told(why))
    assert (told(contrast)["fact"], told(contrast)["foil"]) == ("push left", "push right")
    not_taken = [doubt for doubt in told(contrast)["doubts"] if "did not take push left" in doubt]
    assert bool(not_taken) == (told(why)["agents_own_action"] == "push right")
    assert [one["step"] for one in told(steps)["steps"]] == list(range(8))
    returns = told(what_if)["returns"]
    assert all(one["with_these_rewards"] == pytest.approx(2 * one["now"], rel=1e-4) for one in returns)
    assert "forecast of terminates by step 7" in told(drivers)["text"]
    assert "mean return in this environment" in told(quality)["lines"][0]
    assert {one["verdict"] for one in told(quality)["skills"]} <= {verdict.words for verdict in tpd.Verdict}
    assert told(quality)["skills"]
    (picture,) = (part for part in plot.content if isinstance(part, ImageContent))
    assert Image.open(io.BytesIO(base64.b64decode(picture.data)), formats=["PNG"]).width > 300
    assert told(learned)["how"]["kind"] == "learned"
    untold = [one for one in told(learned)["outcomes"] if one["verdict"] == "not learned"]
    assert untold
    assert all(one["fact"] is None and one["foil"] is None for one in untold)
    assert "not learned" in told(learned)["doubts"][0]
    assert "only an observation is given" in told(learned)["how"]["simulator_not_asked_because"]


def _check_numbers(runs: Path, said: dict[str, object]) -> None:
    """The numbers are those that Python gives."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(runs)
        explainer = tpd.load(runs / "first" / "cart", trust=["noisy_world"])
        saved = saved_runs.read(runs / "first" / "cart", ["noisy_world"])
        assert saved.recording is not None
        answer = explainer.why(saved.recording.moment(0, 2))
    assert said["how"] == {
        "kind": answer.how.kind,
        "words": answer.how.words,
        "simulator_not_asked_because": None,
        "run": saved.name,
    }
    assert said["text"] == "\n\n".join(answer.sentences)
    doubts = said["doubts"]
    assert isinstance(doubts, list)
    assert doubts[: len(answer.warnings)] == list(answer.warnings)
    outcomes = said["outcomes"]
    assert isinstance(outcomes, list)
    for column in ("fact", "foil", "difference", "fact_low", "fact_high"):
        found = np.array([one[column] for one in outcomes], dtype=float)
        np.testing.assert_allclose(found, answer.table[column], rtol=1e-5)


def test_only_the_protocol_reaches_stdout(runs: Path) -> None:
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "0"}}
    asked = {"name": "explain", "arguments": {"run": "first/cart", "episode": 0, "step": 2, "rollouts": 5}}
    lines = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": asked},
    ]
    with subprocess.Popen(
        [sys.executable, "-c", START, str(runs), TRUST],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(runs),
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None
        assert server.stderr is not None
        server.stdin.write("".join(json.dumps(line) + "\n" for line in lines))
        server.stdin.flush()
        answers = [json.loads(server.stdout.readline()) for _ in range(2)]
        server.stdin.close()
        left, noise = server.stdout.read(), server.stderr.read()
    assert [answer["id"] for answer in answers] == [1, 2]
    assert left == ""
    assert "noise of Python" in noise
    assert "noise of C" in noise


def test_hostile_input_is_refused_in_one_line(session: Conversation) -> None:
    for expected, result in zip(REFUSED, session.results[len(CALLS) :], strict=True):
        assert re.search(expected, refused(result)), (expected, refused(result))


def test_modules_are_imported_only_where_they_are_trusted(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = Library(str(runs))
    assert [entry.env for entry in library.entries()] == ["noisy_world:Noisy-v0"]
    with pytest.raises(UntrustedError, match="noisy_world"):
        library.read("first/cart")
    monkeypatch.syspath_prepend(runs)
    assert Library(str(runs), ["noisy_world"]).read("first/cart").saved.env.num_actions == 2


def test_the_command_says_what_it_needs(tmp_path: Path) -> None:
    def typed(*words: str, path: Path = ROOT) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", START, *words]
        return subprocess.run(command, capture_output=True, text=True, env=environment(path), check=False)

    with pytest.raises(ValueError, match="there is no folder"):
        Library(str(tmp_path / "nowhere"))
    assert "mcpServers" in typed("--help").stdout
    assert "takes one folder or store" in typed("one", "two").stderr
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['mcp'] = None\n")
    missing = typed(str(tmp_path), path=tmp_path)
    assert missing.stderr.strip() == "tpd-mcp needs the package mcp: pip install 'tpd[assistants]'"


@pytest.mark.slow
def test_runs_of_a_store_are_asked_as_those_of_a_folder(tmp_path: Path) -> None:
    tpd_run(tmp_path, "policy.steps=50_000", "training.steps=50_000", "overview=false", store=True)
    (job,) = (path.parent for path in tmp_path.glob("outputs/runs/*/explainer"))
    here = {"state": {"row": 2, "col": 0, "fuel": 6, "passenger": False}}
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    (listed,) = converse([uri], [Call("list_runs", {})]).results
    (entry,) = told(listed)["runs"]
    assert entry["env"] == "FuelTaxi-v0"
    asked = [Call("explain", {"run": entry["run"], **here}), Call("quality", {"run": entry["run"]})]
    stored = converse([uri], [*asked, Call("explain", {"run": str(job), **here})]).results
    folder = converse([str(job.parent)], [Call("explain", {"run": job.name, **here})]).results
    assert told(stored[0]) == told(folder[0])
    assert told(stored[0])["how"]["kind"] == "counted"
    assert told(stored[1])["lines"]
    refused(stored[2])


@pytest.mark.slow
@pytest.mark.skipif(not AGENT.exists(), reason=f"{AGENT.name} is not there")
def test_why_did_it_fire_the_main_engine(tmp_path: Path) -> None:
    agent = tpd.load_agent(AGENT, env="LunarLander-v3")
    explainer = tpd.Explainer(agent, horizon=20)
    explainer.play(seeds=range(8))
    explainer.learn(3000, overrides=QUICK, progress=False).save(tmp_path / "lander")
    here = {"run": "lander", "episode": 3, "step": 150}
    session = converse(
        [str(tmp_path)],
        [
            Call("list_runs", {}),
            Call("moments", {"run": "lander"}),
            Call("explain", {**here, "action": "main engine"}),
            Call("contrast", {**here, "action": "main engine", "foil": "coast"}),
        ],
    )
    _, moments, why, contrast = session.results
    assert len(told(moments)["moments"]) == 10
    answer = told(why)
    assert answer["fact"] == "main engine"
    assert answer["agents_own_action"] != "main engine"
    assert any("the agent did not take main engine here" in doubt for doubt in answer["doubts"])
    assert answer["how"]["kind"] == "rolled out"
    assert answer["returns"]["difference_low"] <= answer["returns"]["difference"]
    assert told(contrast)["foil"] == "coast"
    assert any("at work" in report for report in session.reports)
