"""Coverage-guided fuzzing of everything that reads a file: any input must be read, or refused in one line.

python scripts/fuzz.py [seconds=60] [reader ...]
"""

import contextlib
import io
import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import atheris

import tpd.kernels.counts
import tpd.kernels.learning
import tpd.kernels.stepping  # noqa: F401  # numba compiles kernels as they are written

with atheris.instrument_imports(include=["tpd", "sb3_ext"]):
    import gymnasium as gym
    import numpy as np
    import pandas as pd

    from sb3_ext.loading import load_agent
    from sb3_ext.normalization import load_normalization
    from tests.support import good_files
    from tpd.predictors.explainer import Explainer
    from tpd.run.parts import CHECKPOINT
    from tpd.run.sweep import BEST, read_best
    from tpd.store import explainers, run_descriptions, saved_runs
    from tpd.store.checkpoints import Checkpoint
    from tpd.store.explanations import load_explanation
    from tpd.store.recordings import load_recording
    from tpd.store.run_folders import STATUS, parse_record
    from tpd.store.tables import read_errors, read_metrics
    from tpd.store.yaml_files import OVERRIDES, read_overrides
    from tpd.tracking.served_requests import questions

SECONDS = 60
LONGEST_LINE = 1000
SLOWEST, LARGEST = 20, 4096
"""Limits for one input, in seconds and megabytes."""


@dataclass(frozen=True)
class Reader:
    """A reader of a kind of file, and a valid file to start from."""

    make: Callable[[Path], None]
    file: str
    read: Callable[[Path], Any]


def load_run(folder: Path) -> None:
    """Build what the description names."""
    about = run_descriptions.read(folder / saved_runs.EXPLAINER)
    about.env.make()
    about.outcomes.make()


def load_explainer(folder: Path) -> None:
    """Everything that can be read must give finite answers."""
    explainer: Explainer = explainers.load(folder / saved_runs.EXPLAINER)
    if not hasattr(explainer.predictor, "network"):
        states = np.arange(good_files.lake().table_shape()[0])
        with contextlib.suppress(ValueError):  # there are fewer states
            assert np.isfinite(explainer.explain(states).expected).all()


def ask(folder: Path) -> None:
    """Read a question in the form that MLflow passes on."""
    asked = questions(folder / saved_runs.EXPLAINER)
    assert asked is not None
    rows = json.loads((folder / "question.json").read_bytes())
    if isinstance(rows, list):
        columns = ["state", "action", "foil"]
        asked.read(pd.DataFrame({name: pd.Series(rows, dtype=object) for name in columns}))


def make_question(folder: Path) -> None:
    good_files.table(folder)
    (folder / "question.json").write_text(json.dumps([0, 1.0, None, [1], "1", 10**30]))


POLE = gym.make(good_files.POLE)
READERS = {
    "agent": Reader(good_files.agent, "agent.zip", lambda folder: load_agent(folder / "agent.zip", POLE)),
    "statistics": Reader(
        good_files.statistics,
        "statistics.pkl",
        lambda folder: load_normalization(folder / "statistics.pkl", POLE.observation_space),
    ),
    "table": Reader(good_files.table, f"{saved_runs.EXPLAINER}/{explainers.ARRAYS}", load_explainer),
    "table-json": Reader(
        good_files.table, f"{saved_runs.EXPLAINER}/{explainers.DESCRIPTION}", load_explainer
    ),
    "network": Reader(good_files.network, f"{saved_runs.EXPLAINER}/{explainers.ARRAYS}", load_explainer),
    "network-json": Reader(
        good_files.network, f"{saved_runs.EXPLAINER}/{explainers.DESCRIPTION}", load_explainer
    ),
    "explanation": Reader(
        good_files.explanation,
        "explanation.npz",
        lambda folder: load_explanation(folder / "explanation.npz"),
    ),
    "episodes": Reader(
        good_files.recording, saved_runs.EPISODES, lambda folder: load_recording(folder / saved_runs.EPISODES)
    ),
    "checkpoint": Reader(
        good_files.checkpoint,
        CHECKPOINT,
        lambda folder: Checkpoint(folder / CHECKPOINT, "ours", seconds=0).read(stages=2),
    ),
    "record": Reader(good_files.job, STATUS, lambda folder: parse_record(folder / STATUS)),
    "errors": Reader(good_files.job, "errors.json", lambda folder: read_errors(folder / "errors.json")),
    "metrics": Reader(good_files.job, "metrics.json", lambda folder: read_metrics(folder / "metrics.json")),
    "overrides": Reader(good_files.job, OVERRIDES, read_overrides),
    "best": Reader(good_files.sweep, BEST, lambda folder: read_best(folder / BEST)),
    "run": Reader(good_files.run, f"{saved_runs.EXPLAINER}/{run_descriptions.RUN}", load_run),
    "question": Reader(make_question, "question.json", ask),
}


def main(arguments: list[str]) -> None:
    """Fuzz every reader in its own process, which ends at the first failure."""
    given = dict(argument.split("=") for argument in arguments if "=" in argument)
    wanted = [argument for argument in arguments if "=" not in argument] or list(READERS)
    if unknown := set(wanted) - set(READERS):
        sys.exit(f"there is no reader {', '.join(sorted(unknown))}; there are {', '.join(READERS)}")
    seconds, failed = int(given.get("seconds", SECONDS)), []
    for name in wanted:
        # -P: otherwise numba would import the coverage.py in this folder as the library
        command = [sys.executable, "-P", __file__, "alone", name, str(seconds)]
        done = subprocess.run(command, capture_output=True, text=True)
        told = [line for line in done.stderr.splitlines() if line.startswith("Done ")]
        print(f"{name}: {told[-1] if told else 'FOUND SOMETHING'}", flush=True)
        if done.returncode:
            failed.append(name)
            print(done.stderr[-4000:])
    if failed:
        sys.exit(f"not every input was read or refused in one line: {', '.join(failed)}")


def alone(name: str, seconds: int) -> None:
    """Fuzz one reader, in this process."""
    reader = READERS[name]
    with tempfile.TemporaryDirectory() as scratch:
        folder, corpus = Path(scratch, "files"), Path(scratch, "corpus")
        folder.mkdir()
        corpus.mkdir()
        reader.make(folder)
        good = (folder / reader.file).read_bytes()
        for number, seed in enumerate(_seeds(good)):
            (corpus / str(number)).write_bytes(seed)

        def try_one(data: bytes) -> None:
            (folder / reader.file).write_bytes(_spoilt(good, data))
            try:
                with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
                    reader.read(folder)
            except (ValueError, OSError) as error:
                if "\n" in str(error) or len(str(error)) > LONGEST_LINE:
                    raise AssertionError("that is not one line") from error
            assert not (folder / good_files.MARKER).exists(), "it ran"

        limits = [f"-max_total_time={seconds}", f"-timeout={SLOWEST}", f"-rss_limit_mb={LARGEST}"]
        os.chdir(folder)
        atheris.Setup([sys.argv[0], *limits, str(corpus)], try_one)
        atheris.Fuzz()


def _seeds(good: bytes) -> list[bytes]:
    """The seed inputs: the file itself, or the members of a zip, each with its index.

    A zip is fuzzed by member, since changes to the whole would fail its checksums.
    """
    if not zipfile.is_zipfile(io.BytesIO(good)):
        return [good]
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        return [bytes([place]) + archive.read(name) for place, name in enumerate(archive.namelist())]


def _spoilt(good: bytes, data: bytes) -> bytes:
    """The file that an input encodes."""
    if not zipfile.is_zipfile(io.BytesIO(good)) or not data:
        return data
    with zipfile.ZipFile(io.BytesIO(good)) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    members[list(members)[data[0] % len(members)]] = data[1:]
    spoilt = io.BytesIO()
    with zipfile.ZipFile(spoilt, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return spoilt.getvalue()


if __name__ == "__main__":
    if sys.argv[1:2] == ["alone"]:
        alone(sys.argv[2], int(sys.argv[3]))
    else:
        main(sys.argv[1:])
