"""Writes the report: one self-contained HTML file that works offline."""

import base64
import gzip
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from html import escape
from importlib import resources
from pathlib import Path

import numpy as np
import pandas as pd

from tpd.evaluation.played_return import episode_returns
from tpd.show.report.contents import Contents, gather
from tpd.show.report.packing import pack
from tpd.show.report.rolled_out import RolledOut
from tpd.show.report.rows import choices_of_each_step
from tpd.sources.episodes import Recording
from tpd.store.saved_runs import SavedRun

LARGEST = 15_000_000
"""Upper bound on the bytes of a page; a larger report shows fewer episodes."""
PLOTLY = "plotly-basic.min.js"
MOST_PAIRS, MOST_SIMULATED = 4500, 2000
"""Approximate number of pairs to explain if states are not discrete; and if each one is simulated."""
SCRIPTS = ("data.js", "solve.js", "sentences.js", "charts.js", "report.js")


def write(
    run: SavedRun,
    path: Path,
    points: pd.DataFrame | None = None,
    rolled_out: Sequence[RolledOut] = (),
    headline: str = "",
) -> None:
    """Write the report of a run, with all its episodes or as many as fit.

    points: turning points of its episodes; None if there are none.
    headline: the first line.
    """
    shown = shown_episodes(run)
    page = render(gather(run, sorted(shown), rolled_out, points), headline)
    while len(page) > LARGEST and len(shown) > 1:
        shown = shown[: max(1, min(len(shown) - 1, len(shown) * LARGEST // len(page)))]
        page = render(gather(run, sorted(shown), rolled_out, points), headline)
    path.write_bytes(page)


def shown_episodes(run: SavedRun) -> list[int]:
    """The numbers of the episodes to show: as many as can be explained in about a minute.

    The most informative come first: the worst, the best, the second worst and so on.
    """
    if run.recording is None:
        return []
    ranked = ranked_episodes(run.recording)
    if run.env.tabular:
        return ranked
    actions = choices_of_each_step(run.env)
    steps = np.cumsum([len(run.recording.episodes[number]) for number in ranked])
    pairs_before = np.append(0, steps[:-1]) * actions
    most = MOST_SIMULATED if run.explainer.simulates else MOST_PAIRS
    return ranked[: max(1, int((pairs_before < most).sum()))]


def ranked_episodes(recording: Recording) -> list[int]:
    """All episode numbers: the worst, the best, the second worst and so on."""
    by_return = np.argsort(episode_returns(recording.episodes), kind="stable").tolist()
    return [by_return.pop(0 if turn % 2 == 0 else -1) for turn in range(len(by_return))]


def render(contents: Contents, headline: str = "") -> bytes:
    """The HTML file."""
    scripts = "\n".join(['"use strict";', *(_asset(name) for name in SCRIPTS)])
    parts = {
        "policy": _policy(scripts, _asset(PLOTLY)),
        "title": escape(str(contents.metadata["name"])),
        "headline": escape(headline),
        "style": _asset("report.css"),
        "scripts": scripts,
        "plotly": _base64(gzip.compress(_asset(PLOTLY).encode(), mtime=0)),
        "data": _base64(pack(contents.metadata, contents.arrays)),
        "pictures": "\n".join(map(_base64, contents.files)),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _asset("template.html")).encode()


def _asset(name: str) -> str:
    return resources.files("tpd.show.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _policy(*scripts: str) -> str:
    """The content security policy: only these scripts run, and nothing is loaded."""
    hashes = (_base64(hashlib.sha256(script.encode()).digest()) for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in hashes)
    nothing = "default-src 'none'; base-uri 'none'; form-action 'none'"
    return f"{nothing}; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:"


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
