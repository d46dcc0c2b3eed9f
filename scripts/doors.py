"""Pass hostile inputs to every function that reads data (a "door"). Fails if any input executes code.

python scripts/doors.py     writes docs/results/doors.md by door, and outputs/doors.md by input
"""

import itertools
import os
import re
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # forking a process with OpenMP threads may hang

from tests.support.doors import RAN, READ, ROOM, SECONDS, TOLD, Case, Result, attempt, cases

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "results" / "doors.md"
TABLE = ROOT / "outputs" / "doors.md"
HEAD = f"""# Hostile inputs

tpd reads files and requests that may come from untrusted sources. `python scripts/doors.py` passes hostile
inputs to every function that reads such files and requests. The inputs are pickles that run code, broken and
empty files, pipes and links, very large or deeply nested data, settings of the wrong type. A run keeps its
tracking data in a *journal* in its folder; [`tpd-sync`](../how_to/resume.md#if-the-tracking-server-is-down)
sends it to the MLflow store. Each input is read in a separate process with at most {SECONDS} s and
{ROOM // 2**30} GB of memory. None executed code: each was refused with a one-line error that
names the input, or read as plain data without effect.

The script writes this page, and a file `outputs/doors.md` with the result for each input. It fails if an
input executes code or hangs, or if an input that must be refused is not refused with a one-line error.

| input | read by | hostile inputs | refused | read as plain data |
|---|---|--:|--:|--:|
"""
TOLD_HEAD = """
## If you trust the input

These calls execute code from the input, such as a module named `stranger`.

| input | hostile input | allowed by | result |
|---|---|---|---|
"""
OTHER_HEAD = """
## Other attacks and errors

| input | result | test |
|---|---|---|
"""
OTHERS = (
    (
        "`.numba_config.yaml` in the working directory",
        "not read; numba's cache is in a private folder",
        "kernels/test_compiler",
    ),
    ("a config that is composed but not run", "nothing on disk changes", "store/test_run_folders"),
    (
        "a folder given to `tpd-sync` that names an MLflow run of someone else",
        "that run is not changed: the folder must contain the run's token, which is also a tag of the run in "
        "MLflow",
        "tracking/test_outbox",
    ),
    (
        "a PostScript image in a folder given to `tpd-sync`",
        "not opened: only PNG and JPEG are",
        "tracking/test_outbox",
    ),
    (
        "a model name in a folder given to `tpd-sync`",
        "not registered without `register=true`",
        "tracking/test_outbox",
    ),
    (
        "impossible counts, tags or parent runs in a folder given to `tpd-sync`",
        "refused",
        "tracking/test_outbox",
    ),
    (
        "pickles and weights that expand when read, nest deeply or loop",
        "refused: the number of opcodes is limited",
        "sb3_ext/test_inert_pickles",
    ),
    (
        "spaces and arrays that claim to be larger than their file",
        "refused before memory is allocated",
        "envs/test_large_spaces",
    ),
    (
        "a checkpoint with forged arrays, links or weights and a matching digest",
        "one warning; the run starts from the beginning",
        "store/test_checkpoints",
    ),
    (
        "Parquet pages with more data than the footer says; more rows than fit into the file",
        "refused: page headers and file size are checked before pages are read",
        "sources/test_datasets",
    ),
    (
        "values in a dataset that are outside of their space; hidden states of a recurrent policy with the "
        "wrong length",
        "refused; the error names file and column",
        "sources/test_datasets",
    ),
    (
        "numbers far outside of a Box, or not integers in a Box of integers",
        "refused; the error names file, column, row and value",
        "sources/test_datasets",
    ),
    ("more images than tpd records per episode", "refused before they are opened", "sources/test_episodes"),
    (
        "indices of environment copies (column `stream`) that are out of range",
        "refused; the error names file and column",
        "sources/test_datasets",
    ),
    (
        "JSON with very many lists, or with numbers of a million digits",
        "refused before memory is allocated",
        "envs/test_large_spaces",
    ),
    ("action masks without a valid action", "refused; the error names the state", "envs/test_masks"),
    (
        "deeply nested, large or wide requests; requests in CSV or Parquet",
        "HTTP 400 with the reason",
        "tracking/test_served_model",
    ),
    ("a request of a gigabyte", "not kept in memory; HTTP 400 with the reason", "tracking/test_served_model"),
    ("an outcome function that modifies its input", "refused: its input is read-only", "core/test_outcomes"),
    (
        "an agent without its VecNormalize statistics",
        "refused, unless `vec_normalize=false`",
        "sb3_ext/test_lost_normalization",
    ),
    ("strings as rewards or termination flags", "refused at that step", "sources/test_stepping"),
    ("tracking stores that cannot be used", "refused at once", "tracking/test_outbox, run/test_refusals"),
    ("a `uri` or folder that does not exist", "refused in one line that names it", "run/test_refusals"),
    ("arguments of the wrong type for `tpd-explain`", "refused in one line", "run/test_explain"),
    ("terminal escape sequences in names", "printed as text", "guards/test_terminal"),
    (
        "scripts added to a report",
        "not executed: the page has a content security policy",
        "browser/test_report_in_browser",
    ),
    (
        "telemetry of the MLflow UI",
        "switched off by `tpd-ui`, which listens on loopback only",
        "tracking/test_runs",
    ),
    (
        "artifact paths in a store",
        "refused, unless in a folder `mlruns` in the working directory or beside the store",
        "tracking/test_outbox",
    ),
    (
        "symbolic links and very large files among the artifacts of a store",
        "not copied",
        "tracking/test_runs",
    ),
    (
        "a store with views, triggers, computed columns, SQL functions or pages that refer to themselves, or "
        "with another schema",
        "refused before MLflow opens it",
        "tracking/test_outbox",
    ),
    (
        "a store that cannot be checked within seconds",
        "refused; the error says what to do",
        "tracking/test_outbox",
    ),
    (
        "a run folder with pipes, devices, or links that lead out of it",
        "refused before anything is opened",
        "store/test_run_folders, run/test_refusals",
    ),
    (
        "a journal with very long lines, or with lines that no run writes",
        "refused; the error names the line",
        "tracking/test_outbox",
    ),
    (
        "many or large images in the description of an MLflow run",
        "their total size is limited; the rest is not opened",
        "tracking/test_runs",
    ),
    (
        "settings of a stored environment",
        "their size is limited; a render mode is not allowed",
        "store/test_run_descriptions",
    ),
    (
        "recorded episodes of another environment",
        "refused; the error names what does not fit",
        "store/test_run_descriptions",
    ),
    (
        "ids of Slurm jobs in the files of a sweep folder",
        "ignored: tpd asks `squeue` for the jobs whose script is in the folder",
        "run/test_refusals",
    ),
)


def main() -> None:
    """Try every door, and write the table."""
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        tried = [(case, _tried(case, scratch)) for case in cases()]
        told = [(case, attempt(case, scratch)) for case in TOLD]
    doors = {
        door: list(rows)
        for door, rows in itertools.groupby(tried, key=lambda pair: (pair[0].door.kind, pair[0].door.reader))
    }
    page = HEAD + "".join(_row(*door, [result for _, result in rows]) for door, rows in doors.items())
    page += _row("**all**", "", [result for _, result in tried]) + TOLD_HEAD
    for case, result in told:
        came = "its code ran" if result.what == RAN else f"{result.what}: {_cell(result.line)}"
        page += f"| {case.door.kind} | {case.name} | {case.door.reader} | {came} |\n"
    PAGE.write_text(
        page + OTHER_HEAD + "".join(f"| {what} | {came} | tests/{test} |\n" for what, came, test in OTHERS)
    )
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("# Hostile inputs\n" + "".join(_section(*door, rows) for door, rows in doors.items()))
    open_ = [str(case) for case, result in tried if not result.fine(case)]
    shut = [str(case) for case, result in told if result.what != RAN]
    print(f"{len(tried)} hostile inputs at {len(doors)} doors: {PAGE} and {TABLE}")
    if open_ or shut:
        sys.exit("\n".join([*(f"open: {case}" for case in open_), *(f"shut: {case}" for case in shut)]))


def _tried(case: Case, scratch: Path) -> Result:
    result = attempt(case, scratch)
    print(f"{case}: {result.what}{': ' if result.line else ''}{result.line}")
    return result


def _row(kind: str, reader: str, results: list[Result]) -> str:
    read = sum(result.what == READ for result in results)
    return f"| {_capital(kind)} | {reader} | {len(results)} | {len(results) - read} | {read} |\n"


def _section(kind: str, reader: str, rows: list[tuple[Case, Result]]) -> str:
    lines = [f"\n## {_capital(kind)}, by {reader}\n"]
    lines += ["| hostile input | what came of it |", "|---|---|"]
    for case, result in rows:
        came = READ if result.what == READ else f"{result.what}: {_cell(result.line)}"
        lines.append(f"| {_cell(case.name)} | {came} |")
    return "\n".join(lines) + "\n"


def _capital(words: str) -> str:
    return words[0].upper() + words[1:]


def _cell(text: str) -> str:
    """Inline code, so that nothing in it is Markdown; parts that vary between runs are masked."""
    stable = re.sub(r"run=[0-9a-f]{32}", "run=…", text)
    return f"`` {stable.replace('|', chr(92) + '|')} ``"


if __name__ == "__main__":
    main()
