"""The page: one HTML file with everything in it, which works without a network."""

import base64
import gzip
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path

from tpd.predictors.explainer import SimulatingPredictor
from tpd.show.report.contents import Contents, gather
from tpd.show.report.packing import pack, unpack
from tpd.show.report.rolled_out import RolledOut
from tpd.store.saved_runs import SavedRun

LARGEST = 15_000_000
"""Bytes of a page; a report of more shows fewer episodes."""
MOST_SIMULATED = 3000
"""Pairs that are explained for a report, about, where each of them is simulated."""
SCRIPTS = ("data.js", "solve.js", "sentences.js", "charts.js", "report.js")


def write(run: SavedRun, path: Path, rolled_out: Sequence[RolledOut] = (), headline: str = "") -> None:
    """Write the report of a run, below a headline: of all its episodes, or of as many as fit."""
    count = _episodes(run)
    page = render(gather(run, count, rolled_out), headline)
    while len(page) > LARGEST and count > 1:
        count = max(1, min(count - 1, count * LARGEST // len(page)))
        page = render(gather(run, count, rolled_out), headline)
    path.write_bytes(page)


def _episodes(run: SavedRun) -> int:
    """How many episodes to show: all or, where each forecast is simulated, the first few."""
    if run.recording is None:
        return 1
    begins, predictor = run.recording.episodes.begins, run.explainer.predictor
    if not (isinstance(predictor, SimulatingPredictor) and predictor.simulates):
        return len(begins)
    actions = run.env.num_actions if run.env.discrete else 2
    return max(1, int((begins * actions < MOST_SIMULATED).sum()))


def render(contents: Contents, headline: str = "") -> bytes:
    """The whole file."""
    parts = {
        "title": escape(str(contents.metadata["name"])),
        "headline": escape(headline),
        "style": _asset("report.css"),
        "scripts": "\n".join(_asset(name) for name in SCRIPTS),
        "plotly": _plotly(),
        "data": _base64(pack(contents.metadata, contents.arrays)),
        "pictures": "\n".join(map(_base64, contents.files)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("template.html")).encode()


def read(path: Path) -> Contents:
    """What a report shows, from its file."""
    text = path.read_text(encoding="utf-8")
    metadata, arrays = unpack(base64.b64decode(_block(text, "data")))
    return Contents(
        metadata, arrays, tuple(base64.b64decode(line) for line in _block(text, "pictures").split())
    )


def _block(text: str, name: str) -> str:
    found = re.search(rf'<script type="text/plain" id="{name}">(.*?)</script>', text, re.DOTALL)
    if found is None:
        raise ValueError(f"this is no report: it has no block {name!r}")
    return found[1]


def _asset(name: str) -> str:
    return resources.files("tpd.show.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    return _base64(gzip.compress(_asset("plotly-basic.min.js").encode(), mtime=0))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
