"""Write the tables and picture of docs/results/comparison.md, from the results of `scripts/comparison.py`."""

import json
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import matplotlib
import numpy as np
from comparison_scores import STEPS, Figures

matplotlib.use("agg")
from matplotlib import pyplot as plt

NAMES = {
    "replayed": "tpd: replayed (tables)",
    "auto": "tpd: auto (vectors)",
    "network": "tpd: network alone",
    "paper": "FHTD, as in the paper",
    "model": "learned model, rolled out",
    "model_rollouts": "learned model, 200 rollouts",
    "most_likely_trajectory": "most likely trajectory",
    "most_likely_model": "most likely trajectory",
    "temporal_reward": "temporal reward decomposition",
    "temporal_reward_network": "temporal reward decomposition",
    "reward_decomposition": "reward decomposition",
    "reward_decomposition_network": "reward decomposition",
    "outcome_gvfs": "outcomes as GVFs",
    "outcome_gvfs_network": "outcomes as GVFs",
    "belief_map": "belief map",
    "rollouts_20": "simulator, 20 rollouts",
    "rollouts_200": "simulator, 200 rollouts",
}
WORLDS = {
    "fuel_taxi": "FuelTaxi",
    "frozen_lake": "FrozenLake 8x8",
    "cart_pole": "CartPole",
    "acrobot": "Acrobot",
    "lunar_lander": "LunarLander",
}
OURS = ("replayed", "auto")
NONE = "n/a"
BEGIN, END = "<!-- measured -->", "<!-- end of what was measured -->"
WITHIN = 0.05
"""Relative margin: how much worse than the best learning method ours may be without a remark."""


@dataclass
class Row:
    """One method with one number of transitions, in one world."""

    method: str
    transitions: int
    seeds: list[Figures] = field(default_factory=list)

    def values(self, *names: str) -> list[float]:
        """By seed: the mean of these figures; seeds without any of them are left out."""
        found = [[seed[name] for name in names if name in seed] for seed in self.seeds]
        means = [float(np.mean(each)) for each in found if each]
        return [mean for mean in means if not np.isnan(mean)]

    def mean(self, *names: str) -> float:
        return float(np.mean(self.values(*names) or [np.nan]))

    def median(self, name: str) -> float:
        """The median over seeds: the first seed also includes imports and compilation."""
        return float(np.median(self.values(name) or [np.nan]))

    @property
    def seconds(self) -> float:
        """CPU seconds to collect and to learn."""
        return self.median("seconds to learn") + self.median("seconds to collect")

    def cell(self, *names: str, percent: bool = False) -> str:
        """Mean over the seeds, with minimum and maximum."""
        values = self.values(*names)
        if not values:
            return NONE
        shown = [_percent(value) if percent else _number(value) for value in values]
        mean = _percent(float(np.mean(values))) if percent else _number(float(np.mean(values)))
        low, high = shown[int(np.argmin(values))], shown[int(np.argmax(values))]
        return mean if low == high else f"{mean} ({low}..{high})"

    @property
    def name(self) -> str:
        """The name in tables."""
        size = f", {_power(self.transitions)}" if self.transitions else ""
        return f"{NAMES[self.method]}{size}"

    def skill_names(self) -> list[str]:
        """The names of the Brier skill figures by the last step."""
        told = {name for seed in self.seeds for name in seed}
        measured = sorted(name for name in told if name.endswith(f": skill by {STEPS[-1]}"))
        return measured or sorted(name for name in told if name.endswith(": skill by the moments"))


def read(folder: Path) -> dict[str, list[Row]]:
    """All results, by world."""
    rows: dict[str, dict[tuple[str, int], Row]] = defaultdict(dict)
    for path in sorted(folder.glob("*.json")):
        one = json.loads(path.read_text())
        key = one["method"], one["transitions"]
        rows[one["world"]].setdefault(key, Row(*key)).seeds.append(one["figures"])
    order = list(NAMES)
    return {
        world: sorted(rows[world].values(), key=lambda row: (order.index(row.method), row.transitions))
        for world in WORLDS
        if world in rows
    }


def write_report(folder: Path, page: Path) -> None:
    """Insert the tables between two marks of the page, and write the picture beside it."""
    found = read(folder)
    if not found:
        raise SystemExit(f"nothing was measured in {folder}")
    text = "\n\n".join(section(world, rows) for world, rows in found.items())
    markdown = page.with_suffix(".md")
    before = markdown.read_text()
    pattern = re.compile(f"{re.escape(BEGIN)}.*?{re.escape(END)}", re.DOTALL)
    if not pattern.search(before):
        raise SystemExit(f"{markdown} has no place for the tables: {BEGIN} ... {END}")
    markdown.write_text(pattern.sub(lambda _: f"{BEGIN}\n{text}\n{END}", before))
    picture(found, page.with_suffix(".png"))


def section(world: str, rows: Sequence[Row]) -> str:
    """Both tables of one world, and where ours is not the best."""
    seeds = sorted({len(row.seeds) for row in rows})
    counted = (
        f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else f"{seeds[0]} seed{'s' * (seeds[0] > 1)}"
    )
    accuracy, cost = _accuracy(rows), _cost(rows)
    remarks = "\n".join(f"- {remark}" for remark in behind(rows))
    return f"### {WORLDS[world]} ({counted})\n\n{accuracy}\n\n{cost}\n\n{remarks}".rstrip()


def _accuracy(rows: Sequence[Row]) -> str:
    steps = " / ".join(map(str, STEPS))
    heads = (
        "method, transitions",
        "pairs answered",
        f"mse at {steps}",
        f"mse by {steps}",
        "Brier skill by 29",
        "90 % bands hold",
        "interval score",
        "contrasts with the wrong sign, or none",
    )
    return _table(
        heads,
        (
            (
                row.name,
                row.cell("known", percent=True),
                _three(row, "at"),
                _three(row, "by"),
                row.cell(*row.skill_names()) if row.skill_names() else NONE,
                row.cell("covered", percent=True),
                row.cell("interval score"),
                row.cell("wrong sign", percent=True),
            )
            for row in rows
        ),
    )


def _cost(rows: Sequence[Row]) -> str:
    heads = (
        "method, transitions",
        "equivalent rollouts, policy's action / foil",
        "CPU s to collect and learn",
        "CPU s an answer",
        "MB kept",
        "pays from so many questions",
    )
    rollout = seconds_of_a_rollout(rows)
    return _table(
        heads,
        (
            (
                row.name,
                " / ".join(row.cell(f"by rollouts, {whose}") for whose in ("policy", "foil")),
                _number(row.seconds) if row.transitions else "0",
                _number(row.median("seconds an answer")),
                _number(row.mean("bytes") / 1e6) if row.transitions else "0",
                _pays(row, rollout),
            )
            for row in rows
        ),
    )


def seconds_of_a_rollout(rows: Sequence[Row]) -> float:
    """CPU seconds of one simulator rollout of both actions."""
    by_many = [row.median("seconds an answer") / 200 for row in rows if row.method == "rollouts_200"]
    return by_many[0] if by_many else float("nan")


def _pays(row: Row, rollout: float) -> str:
    """The number of questions from which on learning is cheaper than equally accurate rollouts."""
    equivalent = row.mean("by rollouts")
    if not row.transitions or np.isnan(equivalent) or np.isnan(rollout):
        return NONE
    saved = equivalent * rollout - row.median("seconds an answer")
    if saved <= 0:
        return "never"
    if np.isinf(saved):
        return "1"
    return str(int(np.ceil(row.seconds / saved)))


def behind(rows: Sequence[Row]) -> list[str]:
    """Where ours is clearly worse than the best learning method, by decisive event."""
    said = list[str]()
    for size in sorted({row.transitions for row in rows if row.transitions}):
        here = [row for row in rows if row.transitions == size]
        ours = next((row for row in here if row.method in OURS), None)
        for name in ours.skill_names() if ours is not None else ():
            assert ours is not None
            best = max(here, key=lambda row: np.nan_to_num(row.mean(name), nan=-np.inf))
            lost = best.mean(name) - ours.mean(name)
            if lost > WITHIN * abs(best.mean(name)):
                event = name.partition(":")[0]
                said.append(
                    f"{event}: {NAMES[ours.method]} has skill {ours.mean(name):.3f} by {STEPS[-1]}, "
                    f"{NAMES[best.method]} {best.mean(name):.3f} ({_power(size)} transitions)"
                )
    return said


def picture(found: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Accuracy against the cost of an answer: one point per method, one panel per stochastic world."""
    panels = {world: rows for world, rows in found.items() if any(_placed(row) for row in rows)}
    figure, axes = plt.subplots(
        1, len(panels), figsize=(5.2 * len(panels), 4.6), sharey=True, squeeze=False, layout="constrained"
    )
    for panel, (world, rows) in zip(axes[0], panels.items(), strict=True):
        most = max(row.transitions for row in rows)
        shown = [row for row in rows if row.transitions in (0, most)]
        for row in filter(_placed, shown):
            ours, simulated = row.method in OURS, not row.transitions
            place = row.median("seconds an answer"), row.mean("by rollouts")
            panel.plot(*place, "o", color="C3" if ours else "C0", markersize=9 if ours else 6)
            panel.annotate(
                row.name,
                place,
                textcoords="offset points",
                xytext=(-7, -13) if simulated else (7, 4),
                ha="right" if simulated else "left",
                fontsize=8,
                fontweight="bold" if ours else "normal",
            )
        silent = dict.fromkeys(NAMES[row.method] for row in shown if np.isnan(row.mean("by 29")))
        without = textwrap.fill(f"no probability over time: {', '.join(silent)}", 60) if silent else ""
        panel.set_xlabel(f"CPU seconds an answer\n{without}", fontsize=8)
        panel.set(xscale="log", yscale="log", title=WORLDS[world])
        panel.margins(0.25)
        panel.grid(alpha=0.3)
    axes[0, 0].set_ylabel("accuracy: rollouts that are as good\n(has it happened by step h?)")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _placed(row: Row) -> bool:
    """Whether its accuracy in rollouts is known."""
    return bool(np.isfinite(row.mean("by rollouts")))


def _three(row: Row, what: str) -> str:
    cells = [_number(row.mean(f"{what} {h}")) for h in STEPS]
    return NONE if set(cells) == {NONE} else " / ".join(cells)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _number(value: float) -> str:
    if np.isnan(value):
        return NONE
    if np.isinf(value):
        return "more than can be told"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"


def _percent(value: float) -> str:
    return f"{100 * value:.0f} %"


def _power(count: int) -> str:
    """1000000 as 10⁶."""
    digits = f"{count:e}".partition("e")
    exponent = str(int(digits[2])).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = float(digits[0])
    return f"10{exponent}" if factor == 1 else f"{factor:g}·10{exponent}"
