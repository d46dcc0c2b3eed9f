"""`Quality`: how good learned explanations are, by the return of the agent and the skill of every event."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from tpd.core.drawing import draw
from tpd.evaluation.forecasts import ForecastSkill
from tpd.guards.files import blame, require_file
from tpd.run.results import PLOTS, RELIABILITY, Findings
from tpd.store.saved_runs import FORECASTS, RESULT
from tpd.store.tables import read_table

LARGEST_RESULT, LARGEST_PICTURE = 2**20, 2**24
COLUMNS = ["actions", "outcome", "range", "skill", "verdict"]
UNLEARNED = "nothing is learned yet: call learn()"
NOT_JUDGED = "the learned predictions were not evaluated (evaluation=none)"
SKILL = (
    "skill of forecasts up to and including a step (by 5: by step 5), after actions of the policy and after "
    "foils: 1 is perfect, 0 is no better than the mean; NaN if an outcome never varies; it is then learned "
    "if the forecasts are right"
)


@dataclass(frozen=True, repr=False)
class Quality:
    """How good learned explanations are, judged by fresh episodes that were not learned from.

    `lines` begins with the mean return in these episodes beside the expected one; ± is its standard error.
    `table` has the skill of each outcome by step 5, 15 and 29 (1: perfect, 0: no better than the mean) and a
    verdict: learned, not learned, or too rare to tell. It is None if nothing was judged.

    >>> import tpd
    >>> tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1").quality
    nothing is learned yet: call learn()
    """

    lines: tuple[str, ...]
    forecasts: pd.DataFrame | None = None
    """One row per outcome, kind of action and range of steps; None if nothing was judged."""
    skill: ForecastSkill | None = None
    """Skill after the policy's own actions, for `plot`; None for a loaded explainer."""
    picture: bytes | None = None
    """The saved reliability plot, as a PNG; None unless the explainer was loaded."""

    @classmethod
    def of(cls, findings: Findings) -> "Quality":
        """From the findings of an evaluation."""
        lines, forecasts = tuple(findings.lines), findings.forecasts
        return cls(lines) if forecasts is None else cls(lines, forecasts.frame(), forecasts.policy)

    @classmethod
    def read(cls, folder: Path) -> "Quality":
        """Read the quality that was saved with an explainer."""
        path = folder / RESULT
        if not path.is_file():
            return cls(())
        require_file(path, LARGEST_RESULT)
        with blame(path):
            lines = tuple(path.read_text().splitlines())
        table, drawn = folder / FORECASTS, folder / PLOTS / RELIABILITY
        if not table.is_file():
            return cls(lines)
        forecasts = read_table(table, [name for name in COLUMNS if name != "skill"])
        if not drawn.is_file():
            return cls(lines, forecasts)
        require_file(drawn, LARGEST_PICTURE)
        with blame(drawn):
            return cls(lines, forecasts, picture=drawn.read_bytes())

    @property
    def table(self) -> pd.DataFrame | None:
        """One row per outcome with skill and verdict by each step; None if nothing was judged."""
        return None if self.forecasts is None else _by_step(self.forecasts)

    def plot(self) -> Any:
        """Reliability diagram (a matplotlib figure): event frequencies against forecast probabilities."""
        if self.skill is not None:
            return draw(self.skill, "reliability")
        if self.picture is not None:
            return draw(self.picture, "picture")
        reason = UNLEARNED if self.lines == (UNLEARNED,) else NOT_JUDGED
        raise ValueError(f"there is nothing to plot: {reason}")

    @property
    def _said(self) -> tuple[str, ...]:
        """The lines, and a caption for the table."""
        return (*self.lines, SKILL) if self.forecasts is not None else self.lines or (NOT_JUDGED,)

    def __repr__(self) -> str:
        return "\n".join([*self._said, *([] if self.table is None else [self.table.to_string()])])

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(line)}</p>" for line in self._said)
        return said + ("" if self.table is None else self.table.to_html())


def _by_step(forecasts: pd.DataFrame) -> pd.DataFrame:
    """One row per outcome: skill and verdict by each step, after the policy's own and after other actions."""
    judged = forecasts[forecasts["range"].str.startswith("by ")]
    columns = {
        (actions, by, what): part.set_index("outcome")[what]
        for (actions, by), part in judged.groupby(["actions", "range"], sort=False)
        for what in ("skill", "verdict")
    }
    return pd.DataFrame(columns).loc[list(dict.fromkeys(judged["outcome"]))]
