"""The comparison with other methods: its scores, and a small run of its command."""

import json
import os
import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.commands import ROOT, fork_server
from tpd.core.bands import Band
from tpd.core.outcomes import Legend

SCRIPTS = ROOT / "scripts"
comparison = SimpleNamespace(**runpy.run_path(str(SCRIPTS / "comparison_scores.py")))
MOMENTS, HORIZON = 400, 30
LEGEND = Legend(("crash", "first crash"), (-1.0, None), (), 1.0, ("crash", "first crash"))


def truth(rollouts: float, seed: int = 0) -> tuple[Any, Any]:
    """What is true of random pairs, and what is known of it by so many rollouts."""
    rng = np.random.default_rng(seed)
    hazard = rng.uniform(0, 0.1, (2 * MOMENTS, 1)) * np.ones(HORIZON)
    first = hazard * np.cumprod(1 - np.pad(hazard, ((0, 0), (1, 0)))[:, :-1], axis=1)
    both = np.repeat(first[..., None], 2, axis=2)
    return both, _truth(sampled(both, rollouts, rng), rollouts, -both[..., 0].sum(axis=1))


def sampled(expected: Any, rollouts: float, rng: np.random.Generator) -> Any:
    """Means over rollouts in which the event happens at most once."""
    if np.isinf(rollouts):
        return expected
    first = expected[..., 0]
    chances = np.column_stack([first, 1 - first.sum(axis=1)])
    happened = rng.multinomial(int(rollouts), chances)[:, :-1] / rollouts
    return np.repeat(happened[..., None], 2, axis=2)


def _truth(expected: Any, rollouts: float, returns: Any) -> Any:
    own = np.tile([True, False], MOMENTS)
    difference = returns[own] - returns[~own]
    return comparison.Truth(
        own=own,
        expected=expected,
        rollouts=np.full(len(own), rollouts),
        differences=np.stack([difference, difference]),
        errors=np.zeros((2, MOMENTS)),
        legend=LEGEND,
        decisive=("crash",),
    )


def said(expected: Any, **other: Any) -> Any:
    told = np.ones((HORIZON, 2), dtype=np.bool_)
    usual: dict[str, Any] = {
        "expected": expected,
        "told_at": told,
        "told_by": told,
        "returns": -expected[..., 0].sum(axis=1),
        "known": np.ones(len(expected), dtype=np.bool_),
        "endless": False,
        "band": None,
    }
    return comparison.Said(**(usual | other))


@pytest.mark.parametrize("known_by", [np.inf, 50])
def test_rollouts_are_worth_as_many_rollouts_as_they_are(known_by: float) -> None:
    """Also where the truth itself is an estimate: its noise is not taken for errors."""
    exact, true = truth(known_by)
    for rollouts in (20, 200):
        figures = comparison.scores(said(sampled(exact, rollouts, np.random.default_rng(1))), true)
        assert figures["at rollouts"] == pytest.approx(rollouts, rel=0.15)
        assert figures["by rollouts"] == pytest.approx(rollouts, rel=0.25)
    biased = comparison.scores(said(np.clip(exact + 0.05, 0, 1)), true)
    assert biased["by rollouts"] < 2


def test_what_is_not_told_has_no_score() -> None:
    exact, true = truth(np.inf)
    silent = np.zeros((HORIZON, 2), dtype=np.bool_)
    figures = comparison.scores(said(exact, told_at=silent, told_by=silent), true)
    assert not [name for name in figures if name.startswith(("at", "by", "crash"))]
    assert figures["wrong sign"] == 0


def test_contrasts_are_judged_by_their_sign() -> None:
    exact, true = truth(np.inf)
    right = said(exact)
    assert comparison.scores(right, true)["wrong sign"] == 0
    assert comparison.scores(said(exact, returns=-right.returns), true)["wrong sign"] == 1


def test_bands_are_scored() -> None:
    exact, true = truth(np.inf)
    near = comparison.scores(said(exact, band=Band(exact - 0.01, exact + 0.01)), true)
    assert near["covered"] == 1
    assert near["interval score"] == pytest.approx(0.02)
    beside = comparison.scores(said(exact, band=Band(exact + 0.01, exact + 0.02)), true)
    assert beside["covered"] == 0
    assert beside["interval score"] == pytest.approx(0.01 + 20 * 0.01)


def test_a_small_comparison_leaves_files_tables_and_a_picture(tmp_path: Path) -> None:
    words = [
        "worlds=[fuel_taxi]",
        "methods=[replayed,reward_decomposition,rollouts_20]",
        "transitions=[3000]",
        "seeds=1",
        "moments=4",
        "episodes=10",
        "overrides=[policy.steps=20_000]",
        "out=found",
        "uri=''",
    ]
    assert "fuel_taxi-replayed-3000-0" in _run(words, tmp_path)
    assert sorted(path.name for path in (tmp_path / "found").glob("*.json")) == [
        "fuel_taxi-replayed-3000-0-moments_4-episodes_10-overrides_787752d3.json",
        "fuel_taxi-reward_decomposition-3000-0-moments_4-episodes_10-overrides_787752d3.json",
        "fuel_taxi-rollouts_20-0-0-moments_4-episodes_10-overrides_787752d3.json",
    ]
    assert _run(words, tmp_path).startswith("0 results measured")  # all is there already
    (decomposed,) = (tmp_path / "found").glob("fuel_taxi-reward_decomposition-*.json")
    silent = json.loads(decomposed.read_text())
    assert "by 29" not in silent["figures"]
    (tmp_path / "page.md").write_text("before\n<!-- measured -->\n<!-- end of what was measured -->\nafter\n")
    _run(["report", "page", "found"], tmp_path)
    page = (tmp_path / "page.md").read_text()
    assert page.startswith("before\n")
    assert "| tpd: replayed (tables), 3·10³ |" in page
    assert "| reward decomposition, 3·10³ |" in page
    assert "| FuelTaxi: dropoff | 3·10³ |" in page
    assert (tmp_path / "page.png").stat().st_size > 5_000
    for path in (tmp_path / "found").glob("*.json"):
        path.unlink()
    lesser = silent | {"moments": 1, "figures": silent["figures"] | {"wrong sign": 0.123}}
    decomposed.write_text(json.dumps(lesser))
    _run(["report", "page", "found"], tmp_path)  # from page.json, which has more moments
    assert (tmp_path / "page.md").read_text() == page


def _run(words: list[str], folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = fork_server().run(SCRIPTS / "comparison.py", words, folder, environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def script(name: str, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A script that imports its neighbours."""
    monkeypatch.syspath_prepend(str(SCRIPTS))
    return SimpleNamespace(**runpy.run_path(str(SCRIPTS / f"{name}.py")))


def test_a_small_trial_of_another_seed_is_not_averaged_with_larger_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    by_world = script("comparison_results", monkeypatch).by_world
    sizes = [(0, 100, {}), (1, 98, {}), (2, 3, {}), (3, 100, {"fit_updates": 10})]
    results: list[dict[str, Any]] = [
        {"world": "acrobot", "method": "auto", "transitions": 100_000, "seed": seed, "episodes": 300}
        | {"moments": moments, "figures": {"by 29": float(seed)}, **more}
        for seed, moments, more in sizes
    ]
    (row,) = by_world(results)["acrobot"]
    assert row.values("by 29") == [0, 1]


def test_a_damaged_result_is_measured_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    intact, path = script("comparison", monkeypatch).intact, tmp_path / "one.json"
    assert not intact(path)
    path.write_text('{"world": "fuel')
    assert not intact(path)
    assert "is damaged, and measured again" in capsys.readouterr().out
    path.write_text("{}")
    assert intact(path)
