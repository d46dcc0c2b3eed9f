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
from tpd.run.results import PLOTS, RELIABILITY, Findings
from tpd.store.saved_runs import FORECASTS, RESULT
from tpd.store.tables import read_table

LARGEST_RESULT, LARGEST_PICTURE = 2**20, 2**24
RolledOut = tuple[Explainer, MonteCarlo, SampledCases]
COLUMNS = ["actions", "outcome", "range", "skill", "verdict"]
UNLEARNED = "nothing is learned yet: call learn()"
NOT_JUDGED = "what was learned was never judged (evaluation=none)"
SKILL = (
    'skill of forecasts of what happens up to and with a step ("by 5"), after the actions of the policy and '
    "after foils: 1 is perfect, 0 no better than the mean"
)


@dataclass(frozen=True, repr=False)
class Quality:
    """How good learned explanations are, by fresh episodes that nobody learned from.

    `lines` begins with the return played here beside the one expected; ± is the standard error of the mean.
    `table` has the skill of each outcome by step 5, 15 and 29 (1 is perfect, 0 no better than the mean), and
    a verdict: learned, not learned, or too rare to tell. It is None where nothing was judged.

    >>> import tpd
    >>> tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1").quality
    nothing is learned yet: call learn()
    """

    lines: tuple[str, ...]
    forecasts: pd.DataFrame | None = None
    """A row for each outcome, kind of actions and range of steps; None where nothing was judged."""
    skill: ForecastSkill | None = None
    """After the policy's own actions, to be drawn; None for an explainer that was loaded."""
    rolled_out: RolledOut | None = None
    """The moments that explanations were compared with rollouts at."""
    picture: bytes | None = None
    """What was drawn of the skill when it was saved, as a PNG; None for an explainer that was not loaded."""

    @classmethod
    def of(cls, findings: Findings, rolled_out: RolledOut | None) -> "Quality":
        """From what was found about an explainer."""
        lines, forecasts = tuple(findings.lines), findings.forecasts
        if forecasts is None:
            return cls(lines, rolled_out=rolled_out)
        return cls(lines, forecasts.frame(), forecasts.policy, rolled_out)

    @classmethod
    def read(cls, folder: Path) -> "Quality":
        """What was found when an explainer was saved."""
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
        """A row for each outcome: skill and verdict by each step; None where nothing was judged."""
        return None if self.forecasts is None else _by_step(self.forecasts)

    def plot(self) -> Any:
        """A matplotlib figure: how often events happened against how likely they were said to be."""
        if self.skill is not None:
            return draw(self.skill, "reliability")
        if self.picture is not None:
            return draw(self.picture, "picture")
        reason = UNLEARNED if self.lines == (UNLEARNED,) else NOT_JUDGED
        raise ValueError(f"there is nothing to draw: {reason}")

    def plot_survival(self) -> Any:
        """A matplotlib figure: what has happened by each step at a few moments, explained and rolled out.

        None where no moments were rolled out, or no event first occurs at any of them.
        """
        return None if self.rolled_out is None else draw(self.rolled_out, "survival")

    @property
    def _said(self) -> tuple[str, ...]:
        """The lines, and what the table below them shows."""
        return (*self.lines, SKILL) if self.forecasts is not None else self.lines or (NOT_JUDGED,)

    def __repr__(self) -> str:
        return "\n".join([*self._said, *([] if self.table is None else [self.table.to_string()])])

    def _repr_html_(self) -> str:
        said = "".join(f"<p>{escape(line)}</p>" for line in self._said)
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
