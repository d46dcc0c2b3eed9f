"""Try hostile inputs at every entry point ("door") that reads data. Fails if anything got in.

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
HEAD = f"""# Doors

A door is a function that reads a file or a request. Each was handed hostile inputs, each in a process of its
own with {SECONDS} s and {ROOM // 2**30} GB: pickles that run code, broken and empty files, pipes and links,
arrays and nesting of absurd sizes, settings of the wrong kind. None of their code ran. An input is refused in
one line that names it, or read as plain data where nothing depends on it.

`python scripts/doors.py` makes this page, writes the answer to every input to `outputs/doors.md`, and fails
if something ran, hung, or was not refused in one line. `tests/store/test_doors.py` asserts the same.

| door | read by | hostile inputs | refused | read as plain data |
|---|---|--:|--:|--:|
"""
TOLD_HEAD = """
## Only when told

These run the code of the file, because the user said so.

| file | hostile input | told by | what came of it |
|---|---|---|---|
"""
OTHER_HEAD = """
## Doors that are no files

| what is hostile | what comes of it | shown by |
|---|---|---|
"""
OTHERS = (
    (
        "`.numba_config.yaml` in the working directory",
        "not read; the cache is private",
        "kernels/test_compiler",
    ),
    ("composing a config", "changes nothing on disk", "store/test_run_folders"),
    (
        "a run that a synced folder did not start",
        "left alone: the token must be its own",
        "tracking/test_outbox",
    ),
    ("a picture in PostScript in a synced folder", "not opened: PNG and JPEG only", "tracking/test_outbox"),
    ("a model name in a synced folder", "not registered without `register=true`", "tracking/test_outbox"),
    (
        "pickles and weights that swell, nest or hang",
        "refused by counted opcodes",
        "sb3_ext/test_inert_pickles",
    ),
    (
        "spaces and arrays larger than their file",
        "refused before there is room made",
        "envs/test_large_spaces",
    ),
    (
        "a checkpoint with forged arrays, links or weights, and a digest that fits",
        "one warning, and the run starts anew with new parts",
        "store/test_checkpoints",
    ),
    (
        "pages of Parquet that hold more than the footer says, rows that a file cannot hold",
        "refused by the headers of the pages and the size of the file",
        "sources/test_datasets",
    ),
    (
        "values that a space does not hold, hidden states of another length",
        "refused, with file and column",
        "sources/test_datasets",
    ),
    (
        "numbers far outside of a Box, or outside of one of whole numbers",
        "refused, with file, column, row and value",
        "sources/test_datasets",
    ),
    ("more pictures than are taken of an episode", "refused before they are opened", "sources/test_episodes"),
    ("streams below 0 or too many of them", "refused, with file and column", "sources/test_datasets"),
    (
        "JSON of many lists, numbers of a million digits",
        "refused before they are made",
        "envs/test_large_spaces",
    ),
    ("masks without a valid action", "refused, with the state", "envs/test_masks"),
    (
        "requests that are deep, large or wide, CSV or Parquet",
        "400 with the reason",
        "tracking/test_served_model",
    ),
    (
        "a request of a gigabyte",
        "read to its end and not kept; 400 with the reason",
        "tracking/test_served_model",
    ),
    ("an outcome function that writes", "refused: its batch is read-only", "core/test_outcomes"),
    ("an agent without its VecNormalize", "refused, unless told", "sb3_ext/test_lost_normalization"),
    ("words as rewards or ends", "refused at the step", "sources/test_stepping"),
    ("stores that cannot be used", "refused at once", "tracking/test_outbox, run/test_refusals"),
    ("a `uri` or folder that there is not", "refused in one line that names it", "run/test_refusals"),
    ("questions of other kinds", "refused in one line", "run/test_explain"),
    ("escape sequences in names", "shown as text", "guards/test_terminal"),
    ("scripts in a changed report", "not run, by its policy", "browser/test_report_in_browser"),
    ("telemetry of the MLflow UI", "off in `tpd-ui`, which listens on loopback", "tracking/test_runs"),
    (
        "places of files that a store names",
        "refused, unless below `mlruns` beside it or here; in a moved folder those beside it are taken",
        "tracking/test_outbox",
    ),
    ("links and gigabytes among the files of a store", "not copied", "tracking/test_runs"),
    (
        "a store with views, triggers, computed columns, functions or circles, or of another schema",
        "refused before MLflow opens it",
        "tracking/test_outbox",
    ),
    (
        "a store that cannot be checked within seconds",
        "refused, with what to do",
        "tracking/test_outbox",
    ),
    (
        "a run folder with links that lead out, pipes or devices",
        "refused before anything is opened",
        "store/test_run_folders, run/test_refusals",
    ),
    ("a journal of long lines, or of what no run writes", "refused by line", "tracking/test_outbox"),
    (
        "many or large pictures in a note",
        "bounded together; those beyond its length are not opened",
        "tracking/test_runs",
    ),
    (
        "counts, tags and parents in a synced folder",
        "refused, unless a run could have them",
        "tracking/test_outbox",
    ),
    ("settings of a stored environment", "bounded, and without a render mode", "store/test_run_descriptions"),
    (
        "recorded episodes of another world",
        "refused, with the part that does not fit",
        "store/test_run_descriptions",
    ),
    (
        "names of Slurm jobs in a sweep folder",
        "not believed: Slurm says whose script a job runs",
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
        came = "it ran" if result.what == RAN else f"{result.what}: {_cell(result.line)}"
        page += f"| {case.door.kind} | {case.name} | {case.door.reader} | {came} |\n"
    PAGE.write_text(
        page + OTHER_HEAD + "".join(f"| {what} | {came} | tests/{test} |\n" for what, came, test in OTHERS)
    )
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text("# Doors\n" + "".join(_section(*door, rows) for door, rows in doors.items()))
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
