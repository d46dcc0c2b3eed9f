"""Names of strangers stay text, in reports, notebooks and notes; and no stranger can connect."""

import re
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from mlflow import MlflowClient
from PIL import Image

from tests.support import small_mdp
from tests.support.commands import ROOT, tpd_run
from tests.support.reports import read
from tests.support.small_mdp import SmallMDP
from tpd.core.outcomes import Legend, OutcomeSet, event
from tpd.envs import Environment
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.show import report
from tpd.show.report import page
from tpd.sources.episodes import Recorder
from tpd.store.saved_runs import SavedRun
from tpd.tracking.mlflow_runs import MlflowTracking

SCRIPT = "</script><script>alert('&')</script>"
IMAGE = '"><img src=x onerror=alert(1)>'
LINK = "[here](javascript:alert(1)) `code` **bold** | cell"
HOSTILE = [SCRIPT, IMAGE, LINK]
MAKES_HTML = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|Function\("
PLAIN_TAGS = {"style", "div", "strong", "table", "tr", "th", "td", "i", "b", "p"}


class Named(SmallMDP):
    """Calls all of its states something hostile."""

    def describe_state(self, state: int) -> str:
        return f"{SCRIPT}{state}{LINK}"


gym.register(id="Named-v0", entry_point="tests.show.test_escaping:Named", max_episode_steps=50)


class Seen(HTMLParser):
    """The tags of a page with their attributes, and its text outside of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, tuple[str, ...]]] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self._inside = tag

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside not in ("script", "style"):
            self.text += data


def saved_run(names: list[str]) -> SavedRun:
    """A run of which actions, states, an outcome and the run itself have these names."""
    env = Environment("Named-v0" if names == HOSTILE else "SmallMDP-v0", action_names=names)
    policy = small_mdp.policy()
    events = [event(names[0] + names[2], small_mdp.odd, 1.0), event(names[1], small_mdp.even, 0.0)]
    outcomes = OutcomeSet(events, partition=True, accounts_for_reward=True)
    explainer = Explainer(ExactSolution(env, policy, outcomes, horizon=4), policy, outcomes.legend)
    recording = Recorder(episodes=2, steps=6).record(env, policy, outcomes)
    return SavedRun("".join(names), explainer, env, recording, lambda: outcomes)


def test_a_report_has_the_same_tags_whatever_things_are_called(tmp_path: Path) -> None:
    path = tmp_path / f"{LINK}.html"
    report.write(saved_run(HOSTILE), path)
    report.write(saved_run(["a", "b", "c"]), tmp_path / "plain.html")
    hostile, plain = Seen(path.read_text()), Seen((tmp_path / "plain.html").read_text())
    assert hostile.tags == plain.tags
    assert SCRIPT in hostile.text  # the title says it
    assert SCRIPT not in path.read_text()
    words = read(path).metadata
    assert SCRIPT in str(words)  # the sentences and names are there, for the scripts to show as text


def test_the_scripts_of_a_report_make_no_html_of_words() -> None:
    for name in page.SCRIPTS:
        script = resources.files("tpd.show.report").joinpath(name).read_text()
        assert not re.search(MAKES_HTML, script)
    charts = resources.files("tpd.show.report").joinpath("charts.js").read_text()
    shown = re.findall(r"(?:name|text|ticktext|hovertemplate): (.*\.name\b.*|.*[pP]lainName.*)", charts)
    assert len(shown) > 2
    assert [line for line in shown if "escaped(" not in line] == []


@pytest.mark.parametrize("names", [HOSTILE, [f"<b>{name}" for name in HOSTILE]])
def test_a_notebook_shows_names_as_text(names: list[str]) -> None:
    explained = saved_run(HOSTILE).explainer.explain(np.arange(3), np.array([0, 1, 2]))
    legend = Legend(tuple(names[:2]), (1.0, 0.0), tuple(names[:2]), 1.0, tuple(names[:2]))
    hostile = replace(explained, legend=legend)
    for shown in (hostile, hostile[:1] - hostile[1:2]):
        seen = Seen(shown._repr_html_())
        assert {tag for tag, _ in seen.tags} <= PLAIN_TAGS
        assert not any(name.startswith("on") for _, attributes in seen.tags for name in attributes)
        assert names[0] in seen.text


@dataclass(frozen=True)
class Job:
    """A run whose name, actions and outcomes are hostile."""

    uri: str
    note: str
    told: str
    """In the terminal."""


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Job:
    folder = tmp_path_factory.mktemp("job")

    def quoted(text: str) -> str:
        return "'" + text.replace("'", r"\'") + "'"

    settings = [
        "env=frozen_lake",
        "outcomes=default",
        "explainer=replayed",
        "evaluation=forecasts",
        "policy.steps=300",
        "training.steps=300",
        "recording.episodes=1",
        f"name={quoted(IMAGE + LINK)}",  # it names a file, too
        f"env.action_names=[{', '.join(quoted(name) for name in [*HOSTILE, 'up'])}]",
    ]
    done = tpd_run(folder, *settings, store=True)
    uri = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(uri)
    (run,) = client.search_runs([found.experiment_id for found in client.search_experiments()])
    return Job(uri, run.data.tags["mlflow.note.content"], done.stdout)


def unquoted(note: str) -> str:
    """Markdown without its code blocks, which are shown as they are."""
    return "\n".join(line for line in note.splitlines() if not line.startswith("    "))


def test_a_note_shows_names_as_text(job: Job) -> None:
    note = unquoted(job.note)
    assert "&lt;script&gt;alert" in note
    assert "<script" not in note
    assert "<img" not in note
    assert "](javascript" not in note
    assert "**bold**" not in note
    assert "` code" not in note
    assert all(line.count(" | ") == 0 or line.startswith("|") for line in note.splitlines())


def test_what_is_printed_binds_to_this_machine(job: Job) -> None:
    commands = re.findall(r".*mlflow models serve(?:.*\\\n)*.*", f"{job.note}\n{job.told}")
    assert len(commands) == 1
    assert all("--host 127.0.0.1" in " ".join(command.split()) for command in commands)
    assert "mlflow ui" not in job.note + job.told
    assert "tpd-ui" in job.told


def test_a_picture_may_be_called_anything(job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where a new experiment keeps its files
    picture = tmp_path / "x](javascript:alert(1)) <img src=x onerror=alert(1)>.png"
    Image.new("RGB", (4, 4)).save(picture)
    with MlflowTracking(uri=job.uri, experiment="pictures").open("run", {}, {}) as run:
        run.describe([picture])
    note = MlflowClient(job.uri).get_run(str(run.id)).data.tags["mlflow.note.content"]
    assert "<img" not in note
    assert re.fullmatch(r"!\[[^\]]*\\\][^\]]*\]\(get-artifact\?[\w%&=.+-]+\)", note)


def test_every_command_that_is_written_down_binds_to_this_machine() -> None:
    texts = [ROOT / "Makefile", *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    texts += [*(ROOT / "docs").rglob("*.ipynb"), *(ROOT / "conf").rglob("*.yaml")]
    commands: list[Any] = []
    for text in texts:
        commands += re.findall(r"mlflow (?:ui|server|models serve) [^\n]*--[^\n]*", text.read_text())
    assert len(commands) >= 2
    own = [command for command in commands if "--allowed-hosts" not in command]  # a server for others says so
    assert [command for command in own if "--host 127.0.0.1" not in command] == []
