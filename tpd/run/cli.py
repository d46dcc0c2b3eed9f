"""The commands `tpd-run`, `tpd-sync`, `tpd-explain`, `tpd-ui`; imports are deferred for a fast --help."""

import gc
import logging
import os
import sys
from pathlib import Path

from tpd.guards.terminal import as_text, only_text

RUN_USAGE = """tpd-run learns to explain a policy, evaluates and plots the result, and tracks it in MLflow.

  tpd-run experiment=fuel_taxi                                 the paper's taxi, explained from counts
  tpd-run experiment=lunar_lander policy.path=agent.zip        an agent of Stable-Baselines3
  tpd-run experiment=agent env.id=MyEnv-v0 policy.path=my.zip  any other environment; its events are detected
  tpd-run -m experiment=paper 'seed=range(10)'                 a sweep over ten seeds

Then:      tpd-explain run=outputs/runs/...                    ask why
           tpd-ui                                              look at all runs
Settings:  tpd-run --help                                      lists all choices and settings
           tpd-run experiment=fuel_taxi --cfg job              shows the settings of one run"""


def run() -> None:
    """Run one experiment, or with -m a sweep of them."""
    if not sys.argv[1:]:
        print(RUN_USAGE)
        return
    # the jobs of a sweep share the cores, and small networks do not gain from several threads
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from tpd.run.configs import CONFIG_FOLDER, SettingError, check
    from tpd.run.task import TextRecord

    logging.setLogRecordFactory(TextRecord)
    logging.raiseExceptions = False  # on a full disk the log cannot be written; print no traceback for that
    for word in sys.argv[1:]:
        group, _, option = word.partition("=")
        if option in ("null", "None") and (CONFIG_FOLDER / group.lstrip("+~")).is_dir():
            sys.exit(f"{word}: {group} must be one of its options; --help lists them")
    try:
        check(sys.argv[1:])
    except SettingError as error:
        sys.exit(as_text(str(error)))
    try:
        with only_text("stdout", "stderr"):
            _run_to_the_end()
    except KeyboardInterrupt:
        from tpd.run.sweep import Sweep

        if Sweep.current is not None:
            Sweep.current.abandon()
        sys.exit("interrupted; repeat the command to resume")


def _run_to_the_end() -> None:
    from tpd.run.task import task

    try:
        task()
    except SystemExit:
        if "tpd.run.sweep" in sys.modules:  # otherwise there is no sweep, and no need to import it
            from tpd.run import sweep

            if sweep.Sweep.current is not None and sweep.Sweep.current.under_way:  # the launcher failed
                sweep.end()
        raise


SYNC_USAGE = """tpd-sync delivers what the tracking store did not accept during a run.

usage: tpd-sync [folder] [uri=...] [register=true]
  folder         the folder of runs or sweeps; by default outputs
  uri=           a store that you trust; stores below the working directory are always trusted
  register=true  also register the explainers of finished runs, under the names in their folders"""


@only_text("stdout", "stderr")
def sync() -> None:
    """Deliver what is still waiting in the outboxes of runs to the tracking store."""
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        print(SYNC_USAGE)
        return
    named = {word.removeprefix("uri=") for word in words if word.startswith("uri=")}
    folders = [Path(word) for word in words if "=" not in word] or [Path("outputs")]
    known = [word for word in words if "=" not in word or word.startswith("uri=") or word == "register=true"]
    if len(known) < len(words) or len(folders) > 1:
        sys.exit(SYNC_USAGE)
    if not folders[0].is_dir():
        sys.exit(f"there is no folder {folders[0]}: pass the folder of runs or sweeps\n{SYNC_USAGE}")
    from tpd.tracking.backend_store import absolute, client_of, require_usable
    from tpd.tracking.delivery import below_here, deliver_all

    try:
        trusted = {absolute(uri) for uri in named}
        for uri in trusted:
            client_of(uri)
            require_usable(uri)
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    left = deliver_all(
        folders[0],
        lambda where, told: print(f"{where}: {told}"),
        lambda uri: uri in trusted or below_here(uri),
        register="register=true" in words,
    )
    sys.exit(f"{left} folders were not delivered" if left else None)


@only_text("stdout", "stderr")
def explain() -> None:
    """Answer a question about a finished run."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    gc.set_threshold(100_000, 50, 50)  # collecting garbage takes a tenth of the import time for nothing
    from tpd.run.explain import main

    main(sys.argv[1:])
    gc.freeze()  # otherwise the interpreter scans all modules once more before it exits


@only_text("stdout", "stderr")
def ui() -> None:
    """Open the MLflow UI."""
    from tpd.tracking.ui import serve

    try:
        serve(sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(str(error))
