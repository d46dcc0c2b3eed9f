"""The results of `scripts/comparison.py`: one file for all of them, and rows of tables made of them."""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from comparison_scores import STEPS, Figures

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
NONE = "n/a"
DIGITS = 4
"""Significant digits that are kept."""
Effort = tuple[bool, float, int, int]
Result = dict[str, Any]
"""World, method, transitions, seed, moments, episodes, updates if they were reduced, and the figures."""


@dataclass
class Row:
    """One method with one number of transitions, in one world."""

    method: str
    transitions: int
    seeds: list[Figures] = field(default_factory=list)
    sizes: list[tuple[int, int]] = field(default_factory=list)
    """By seed: the numbers of moments and of fresh episodes."""

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
        shown = [percentage(value) if percent else number(value) for value in values]
        mean = percentage(float(np.mean(values))) if percent else number(float(np.mean(values)))
        low, high = shown[int(np.argmin(values))], shown[int(np.argmax(values))]
        return mean if low == high else f"{mean} ({low}..{high})"

    @property
    def name(self) -> str:
        """The name in tables."""
        size = f", {power(self.transitions)}" if self.transitions else ""
        return f"{NAMES[self.method]}{size}"

    def skill_names(self) -> list[str]:
        """The names of the Brier skill figures by the last step."""
        told = {name for seed in self.seeds for name in seed}
        measured = sorted(name for name in told if name.endswith(f": skill by {STEPS[-1]}"))
        return measured or sorted(name for name in told if name.endswith(": skill by the moments"))


def gathered(folder: Path, kept: Path) -> list[Result]:
    """The results in the file `kept`, and those in the folder; all are written to `kept`.

    Of several results for the same case, the one without overrides and with the most updates, moments and
    episodes counts; the folder's if they are equal.
    """
    if not kept.exists() and not folder.is_dir():
        raise SystemExit(f"there are no results: neither a file {kept} nor a folder {folder}")
    results = json.loads(kept.read_text()) if kept.exists() else []
    results += [_read(path) for path in folder.glob("*.json")]
    results.sort(key=_effort)
    found = {_key(one): one | {"figures": _rounded(one["figures"])} for one in results}
    if found:
        lines = ",\n".join(json.dumps(found[key]) for key in sorted(found))
        kept.write_text(f"[\n{lines}\n]\n")
    return list(found.values())


def _key(result: Result) -> tuple[int, int, int, int]:
    world, method = list(WORLDS).index(result["world"]), list(NAMES).index(result["method"])
    return world, method, result["transitions"], result["seed"]


def _read(path: Path) -> Result:
    try:
        result: Result = json.loads(path.read_text())
    except ValueError as error:
        raise SystemExit(f"{path} is damaged ({error}): delete it, and measure again") from error
    return result


def _comparable(effort: Effort, most: Effort) -> bool:
    return effort[:2] == most[:2] and all(
        2 * count >= largest for count, largest in zip(effort[2:], most[2:], strict=True)
    )


def _effort(result: Result) -> Effort:
    """Whether it has the usual settings, updates of networks (by default all), moments and episodes."""
    updates = result.get("fit_updates")
    updates = np.inf if updates is None else updates
    return "overrides" not in result, updates, result["moments"], result["episodes"]


def _rounded(figures: Figures) -> Figures:
    return {name: float(f"{value:.{DIGITS}g}") for name, value in figures.items()}


def by_world(results: Iterable[Result]) -> dict[str, list[Row]]:
    """The rows of each world, in the order of the tables.

    A row has only its seeds with the most updates, and with at least half of the most moments and episodes: a
    small trial of another seed is not averaged with them.
    """
    every: dict[tuple[str, str, int], list[Result]] = defaultdict(list)
    for one in sorted(results, key=_key):
        every[one["world"], one["method"], one["transitions"]].append(one)
    rows: dict[str, list[Row]] = defaultdict(list)
    for (world, method, transitions), seeds in every.items():
        most = max(map(_effort, seeds))
        equal = [one for one in seeds if _comparable(_effort(one), most)]
        sizes = [(one["moments"], one["episodes"]) for one in equal]
        rows[world].append(Row(method, transitions, [one["figures"] for one in equal], sizes))
    return dict(rows)


def number(value: float) -> str:
    if np.isnan(value):
        return NONE
    if np.isinf(value):
        return "not measurable"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.2g}"


def percentage(value: float) -> str:
    return f"{100 * value:.0f} %"


def power(count: int) -> str:
    """1000000 as 10⁶."""
    digits = f"{count:e}".partition("e")
    exponent = str(int(digits[2])).translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    factor = float(digits[0])
    return f"10{exponent}" if factor == 1 else f"{factor:g}·10{exponent}"
