"""How far an explainer can be trusted: the return played here, and the skill of every event."""

from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

import pandas as pd

from tpd.core.drawing import draw
from tpd.evaluation.forecasts import ForecastSkill
from tpd.guards.files import blame, require_file
from tpd.predictors.explainer import Explainer
from tpd.predictors.rollouts import MonteCarlo, SampledCases
from tpd.run.results import FORECASTS, RESULT, Findings
from tpd.store.tables import read_table

LARGEST_RESULT = 2**20
RolledOut = tuple[Explainer, MonteCarlo, SampledCases]
COLUMNS = ["actions", "outcome", "range", "skill", "verdict"]


@dataclass(frozen=True)
class Quality:
    """How good learned explanations are, by fresh episodes that nobody learned from.

    `lines` begins with the return played here beside the one expected. `table` has the skill of each outcome
    by step 5, 15 and 29 (1 is perfect, 0 no better than the mean), and a verdict: learned, not learned, or
    too rare to tell.

    >>> import tpd
    >>> quality = tpd.Quality(("mean return played here: 200 ± 3 over 100 episodes",))
    >>> print(quality)
    mean return played here: 200 ± 3 over 100 episodes
    """

    lines: tuple[str, ...]
    table: pd.DataFrame | None = None
    skill: ForecastSkill | None = None
    """After the policy's own actions, to be drawn; None for an explainer that was loaded."""
    rolled_out: RolledOut | None = None
    """The moments that explanations were compared with rollouts at."""

    @classmethod
    def of(cls, findings: Findings, rolled_out: RolledOut | None) -> "Quality":
        """From what was found about an explainer."""
        if findings.forecasts is None:
            return cls(tuple(findings.lines), rolled_out=rolled_out)
        frame = findings.forecasts.frame()
        return cls(tuple(findings.lines), _by_step(frame), findings.forecasts.policy, rolled_out)

    @classmethod
    def read(cls, folder: Path) -> "Quality | None":
        """What was found when an explainer was saved; None where nobody judged it."""
        path = folder / RESULT
        if not path.is_file():
            return None
        require_file(path, LARGEST_RESULT)
        with blame(path):
            lines = tuple(path.read_text().splitlines())
        table = folder / FORECASTS
        if not table.is_file():
            return cls(lines)
        return cls(lines, _by_step(read_table(table, [name for name in COLUMNS if name != "skill"])))

    def plot(self) -> Any:
        """A matplotlib figure: how often events happened against how likely they were said to be."""
        if self.skill is None:
            raise ValueError(
                "there is nothing to draw: learn first (the figure of a saved explainer lies in it)"
            )
        return draw(self.skill, "reliability")

    def plot_survival(self) -> Any:
        """A matplotlib figure: what has happened by each step at a few moments, explained and rolled out.

        None where no moments were rolled out, or no event first occurs at any of them.
        """
        return None if self.rolled_out is None else draw(self.rolled_out, "survival")

    def __str__(self) -> str:
        shown = [] if self.table is None else [self.table.to_string()]
        return "\n".join([*self.lines, *shown])

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(line)}</p>" for line in self.lines)
        return said + ("" if self.table is None else self.table.to_html())


def _by_step(forecasts: pd.DataFrame) -> pd.DataFrame:
    """A row for each outcome: skill and verdict by each step, after the policy's own actions and others."""
    judged = forecasts[forecasts["range"].str.startswith("by ")]
    columns = {
        (actions, by, what): part.set_index("outcome")[what]
        for (actions, by), part in judged.groupby(["actions", "range"], sort=False)
        for what in ("skill", "verdict")
    }
    return pd.DataFrame(columns).loc[list(dict.fromkeys(judged["outcome"]))]
