"""A real sweep in a real store, the MLflow UI on it, and Debian's Chromium to look at it."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from mlflow import MlflowClient
from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser.finished_sweep import Sweep
from tpd.run.overview import OVERVIEW, REPORT
from tpd.store import saved_runs

ROOT = Path(__file__).parent.parent.parent
CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
WIDTHS = (1280, 390)
SECONDS_TO_START = 90
SMALL = (
    "experiment=fuel_taxi",
    "seed=0,1",
    "policy.steps=100000",
    "training.steps=50000",
    "evaluation=none",
    "recording.episodes=3",
    "recording.steps=40",
)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM.exists():
        raise FileNotFoundError(f"there is no {CHROMIUM}: `make test-browser` installs it, or do so by hand")
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(params=WIDTHS)
def page(browser: Browser, request: pytest.FixtureRequest) -> Iterator[Page]:
    """A page of each width, in which no script may fail."""
    opened = browser.new_page(viewport={"width": request.param, "height": 900})
    errors = list[str]()
    opened.on("pageerror", lambda error: errors.append(str(error)))
    yield opened
    opened.close()
    assert not errors


@pytest.fixture(scope="session")
def screenshots() -> Path:
    folder = ROOT / "build" / "browser"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """Two seeds, tracked in SQLite, with the report of the first one in the parent run."""
    folder = tmp_path_factory.mktemp("sweep")
    command = [sys.executable, str(ROOT / "scripts" / "run.py"), "-m", *SMALL, "hydra.sweep.dir=sweep"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    store = f"sqlite:///{folder}/mlflow.db"
    client = MlflowClient(store)
    experiment = client.get_experiment_by_name("fuel_taxi")
    assert experiment is not None
    found = client.search_runs([experiment.experiment_id], "tags.`tpd.role` = 'sweep'")
    run = saved_runs.read(folder / "sweep" / "0")
    page = folder / "sweep" / "0" / OVERVIEW / REPORT
    return Sweep(store, experiment.experiment_id, found[0].info.run_id, run, page)


@pytest.fixture(scope="session")
def ui(sweep: Sweep, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an MLflow UI on the store of the sweep."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder = tmp_path_factory.mktemp("ui")
    command = [sys.executable, "-m", "mlflow", "ui", "--backend-store-uri", sweep.store]
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(
            [*command, "--host", "127.0.0.1", "--port", str(port), "--workers", "1"],
            cwd=folder,
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            address = f"http://127.0.0.1:{port}"
            _wait_for(f"{address}/health", server, folder / "log")
            yield address
        finally:
            os.killpg(server.pid, signal.SIGTERM)  # the server and what it started, in a session of their own
            server.wait(timeout=30)


def _wait_for(address: str, server: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < deadline and server.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5)
            return
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            time.sleep(0.5)
    raise TimeoutError(f"the MLflow UI did not answer at {address}: {log.read_text()[-2000:]}")
