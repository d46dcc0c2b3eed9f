"""The command `tpd-ui`: starts MLflow's UI for this machine only, without telemetry, at the newest run."""

import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tpd.guards.files import brief
from tpd.guards.settings import did_you_mean, whole_number
from tpd.tracking.backend_store import absolute, client_of, require_existing
from tpd.tracking.runs import LOOPBACK, THIS_EXPERIMENT, THIS_RUN, page

SETTINGS, STORE, PORT = ("store", "port"), "sqlite:///mlflow.db", 5000
USAGE = """usage: tpd-ui [store=sqlite:///mlflow.db] [port=5000]
  shows the runs in MLflow, on this machine only and without telemetry, and prints the address of the newest
  store=  the store of the runs, as in tracking.uri
  port=   the port of http://127.0.0.1:5000"""
PRIVATE = {"MLFLOW_DISABLE_TELEMETRY": "true", "DO_NOT_TRACK": "true", "PYTHONSAFEPATH": "1"}
"""No telemetry, and no modules from the working directory, in all processes that the server starts."""


def ui_command(uri: str) -> str:
    """The command that shows the runs of a store."""
    installed = Path(sys.executable).with_name("tpd-ui")  # works even if it is not on the PATH
    words = [os.path.relpath(installed), *([] if uri == STORE else [f"store={uri}"])]
    return shlex.join(words)


def serve(arguments: Sequence[str]) -> None:
    """Print the address, then replace this process by the UI server."""
    given = dict(word.partition("=")[::2] for word in arguments)
    if given.keys() & {"-h", "--help"}:
        print(USAGE)
        return
    if len(given) < len(arguments):
        raise ValueError(f"a setting is duplicated in {' '.join(arguments)}\n{USAGE}")
    for word, value in given.items():
        if word not in SETTINGS:
            raise ValueError(f"{word}: there is no such setting{did_you_mean(word, SETTINGS)}\n{USAGE}")
        if not value:
            raise ValueError(f"{word}= is empty\n{USAGE}")
    uri, typed = given.get("store", STORE), given.get("port", str(PORT))
    digits = typed.isascii() and typed.isdecimal()
    port = whole_number("port", int(typed) if digits else typed, at_least=1, at_most=65535)
    require_existing(uri, f"there is no store {uri}: start a run first, or pass another store (store=...)")
    print(f"open http://{LOOPBACK}:{port}/{newest_page(uri)}", flush=True)
    command = [sys.executable, "-P", "-m", "mlflow", "server", "--backend-store-uri", absolute(uri)]
    command += ["--host", LOOPBACK, "--port", str(port)]
    os.chdir(tempfile.mkdtemp(prefix="tpd-ui-"))  # the web server imports modules from its working directory
    os.execve(sys.executable, command, os.environ | PRIVATE)


def newest_page(uri: str) -> str:
    """The page of the newest sweep, or of the newest run outside sweeps; the first page if there is none."""
    client = client_of(uri)
    try:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        runs = client.search_runs(experiments, order_by=["attributes.start_time DESC"], max_results=1)
    except Exception as error:  # rows of a store may contain anything
        raise ValueError(f"the store {uri} cannot be read: {brief(error)}") from error
    if not runs:
        return ""
    run = runs[0]
    shown = run.data.tags.get("mlflow.parentRunId", run.info.run_id)
    return page().replace(THIS_RUN, shown).replace(THIS_EXPERIMENT, run.info.experiment_id)
