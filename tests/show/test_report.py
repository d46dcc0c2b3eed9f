"""The report without a browser: what its file holds is what the explainer says."""

import io
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from omegaconf import DictConfig
from PIL import Image

from tests.support import Compose
from tests.support.reports import HOSTILE, dequantised, read, small, unpack
from tests.support.sentences import paragraph
from tpd.answers import what_if
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.types import Array
from tpd.core.verdicts import Verdict, Verdicts
from tpd.envs.fuel_taxi.rules import Action
from tpd.evaluation.played_return import episode_returns
from tpd.predictors.explainer import Explainer
from tpd.run.ahead import BEFORE_ENDS, MOST_STEPS, roll_out_ahead
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.experiment import learn
from tpd.run.parts import build
from tpd.run.results import live_run
from tpd.show import report
from tpd.show.progress import ProgressBars
from tpd.show.report import page, pictures
from tpd.show.report.contents import Contents, gather
from tpd.show.report.packing import LEVELS, Quantised, pack
from tpd.sources.episodes import Recorder
from tpd.store.saved_runs import SavedRun
from tpd.tracking.runs import Run

LEAST_STEPS = 2000


def learned(config: DictConfig, recorder: Recorder) -> SavedRun:
    """A run that has just learned, with a recording."""
    parts = build(config)
    learn(parts, Run(), ProgressBars(False))
    return live_run(parts, recorder.record(parts.env, parts.trainer.policy, parts.outcomes))


@pytest.fixture(scope="module")
def taxi() -> SavedRun:
    """A taxi that learned little, so that much is unknown."""
    few = ["policy.steps=20000", "training.steps=20000", "evaluation=none", "explainer.horizon=10"]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        config = compose("config", overrides=["experiment=fuel_taxi", *few])
    return learned(config, Recorder(episodes=4, steps=30))


@pytest.fixture(scope="module")
def taxi_report(taxi: SavedRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    report.write(taxi, path)
    return path


@pytest.fixture(scope="module")
def shown(taxi_report: Path) -> Contents:
    return read(taxi_report)


def pairs(shown: Contents) -> tuple[Array, Array]:
    """State numbers and actions of the rows of the file."""
    state, action = np.nonzero(shown.arrays["options"] >= 0)
    assert (shown.arrays["options"][state, action] == np.arange(len(state))).all()
    return shown.arrays["state_number"][state], action


def test_every_valid_action_is_there_and_no_other(taxi: SavedRun, shown: Contents) -> None:
    valid = taxi.env.mask(shown.arrays["state_number"])
    assert len(valid) == 1050
    assert ((shown.arrays["options"] >= 0) == valid).all()


def test_the_numbers_are_those_of_the_explanation(taxi: SavedRun, shown: Contents) -> None:
    explanation = taxi.explainer.explain(*pairs(shown))
    span = np.array(shown.metadata["expected_range"]["span"])
    low = np.array(shown.metadata["expected_range"]["low"])
    expected = dequantised(Quantised(shown.arrays["expected"], low, span)).transpose(2, 1, 0)
    assert (np.abs(expected - explanation.expected) <= span / LEVELS * 0.501).all()
    unknown = dequantised(Quantised(shown.arrays["unknown"], np.zeros(1), np.ones(1)))[0].T
    assert unknown == pytest.approx(explanation.unknown, abs=1 / LEVELS)
    assert explanation.unknown.max() > 0.5, "nothing would be shown as unknown"
    assert (shown.arrays["support"] == explanation.support).all()
    assert (shown.arrays["reach"] == explanation.foreseen.sum(axis=1)).all()


def test_returns_under_any_rewards_follow_from_the_counts(taxi: SavedRun, shown: Contents) -> None:
    explanation = taxi.explainer.explain(*pairs(shown))
    changed = {"failure": -7.5, "move": -3.0}
    weights = [
        changed.get(outcome["name"], outcome["weight"] or 0.0) for outcome in shown.metadata["outcomes"]
    ]
    known = shown.arrays["reach"] == shown.metadata["horizon"]
    assert 0 < known.sum() < len(known)
    returns = np.where(known, shown.arrays["counts"] @ np.array(weights), np.nan)
    assert returns == pytest.approx(what_if.returns(explanation, changed), abs=1e-3, nan_ok=True)


def test_bands_are_those_of_every_other_answer(taxi: SavedRun, shown: Contents) -> None:
    band = taxi.explainer.explain(*pairs(shown), draws=ENOUGH_DRAWS).return_band()
    for name, end in {"return_low": band.low, "return_high": band.high}.items():
        np.testing.assert_allclose(shown.arrays[name], end[:, -1], atol=1e-3)
    sparse = (shown.arrays["support"] > 0) & (shown.arrays["support"] < shown.metadata["enough_visits"])
    assert (sparse == taxi.explainer.explain(*pairs(shown)).sparse).all()
    assert sparse.any()


def test_the_steps_are_those_recorded(taxi: SavedRun, shown: Contents) -> None:
    assert taxi.recording is not None
    recorded = taxi.recording.episodes.transitions
    state, taken = shown.arrays["entries"][shown.arrays["steps"]].T
    assert (shown.arrays["state_number"][state] == recorded.observation).all()
    assert (taken == recorded.action).all()
    assert (shown.arrays["happened"] == taxi.recording.happened).all()


def test_the_sentences_are_those_of_the_narrator(taxi: SavedRun, shown: Contents) -> None:
    state = int(taxi.env.state({"row": 2, "col": 0, "fuel": 6, "passenger": False}))
    row = int(np.flatnonzero(shown.arrays["state_number"] == state)[0])
    taken = int(taxi.explainer.policy.action(np.array([state]))[0])
    entry = shown.arrays["entries"].tolist().index([row, taken])
    others = [a for a in np.flatnonzero(taxi.env.mask(np.array([state]))[0]).tolist() if a != taken]
    returns = taxi.explainer.action_returns(np.array([state]))
    best = int(taxi.explainer.favoured(returns, np.array([taken]), taxi.env.mask(np.array([state])))[0])
    for foil in others:
        both = taxi.explainer.explain(np.full(2, state), np.array([taken, foil]), draws=ENOUGH_DRAWS)
        contrast = both[:1] - both[1:]
        fact_name, foil_name = taxi.env.name_of_action(taken), taxi.env.name_of_action(foil)
        third = None
        if best not in (taken, foil):
            third = taxi.env.name_of_action(best), float(returns[0, best])
        said = paragraph(contrast, 0, fact_name, foil_name, fact_name, taxi.explainer.predictor.tie, third)
        assert shown.metadata["sentences"][entry][foil] == said


def test_few_pictures_compose_all_states(taxi: SavedRun) -> None:
    fields = taxi.env.state_fields
    composed = pictures.composed(taxi.env, fields)
    assert len(composed.files) == 5 * 5 * 2 + 21
    every = pictures.combinations(fields)
    for number in (0, 77, 500, 1049):
        drawn = taxi.env.picture(taxi.env.state(every[number]))
        assert drawn is not None
        size = drawn.shape[1], drawn.shape[0]
        whole = Image.new("RGB", size)
        for layer, file in zip(composed.layers, composed.shown[number], strict=True):
            left, top, width, height = np.rint(np.array(layer) * [*size, *size]).astype(int)
            part = Image.open(io.BytesIO(composed.files[file])).convert("RGB").resize((width, height))
            whole.paste(part, (int(left), int(top)))
        assert np.abs(np.asarray(whole, dtype=float) - drawn).mean() < 4


def test_a_report_fits_its_limit_by_showing_fewer_episodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = small()
    report.write(run, tmp_path / "all.html")
    assert read(tmp_path / "all.html").metadata["left_out"] == 0
    monkeypatch.setattr(page, "LARGEST", (tmp_path / "all.html").stat().st_size - 1)
    report.write(run, tmp_path / "fewer.html")
    fewer = read(tmp_path / "fewer.html")
    assert (tmp_path / "fewer.html").stat().st_size <= page.LARGEST
    assert 0 < fewer.metadata["left_out"] == 5 - len(fewer.metadata["episodes"])


def test_names_of_strangers_stay_text(tmp_path: Path) -> None:
    run = small((HOSTILE, "b", "c"), event_name=HOSTILE, name=HOSTILE)
    report.write(run, tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    plain = small()
    report.write(plain, tmp_path / "plain.html")
    scripts = re.findall(r"<script[ >]", (tmp_path / "plain.html").read_text())
    assert HOSTILE not in text
    assert len(re.findall(r"<script[ >]", text)) == len(scripts)
    words = read(tmp_path / "report.html").metadata
    assert words["actions"][0][0] == HOSTILE
    assert words["outcomes"][0]["name"] == HOSTILE
    assert words["name"].startswith(HOSTILE)


def test_the_dynamics_are_kept_only_where_their_code_is_trusted(shown: Contents, tmp_path: Path) -> None:
    assert len(shown.arrays["model_pair"]) > shown.arrays["model_valid"].sum()
    report.write(small(), tmp_path / "report.html")
    assert "model_pair" not in read(tmp_path / "report.html").arrays


def test_a_run_without_episodes_is_refused(tmp_path: Path) -> None:
    run = small()
    nothing = replace(run, recording=None)
    with pytest.raises(ValueError, match="small, seed 0 has no recorded episodes"):
        report.write(nothing, tmp_path / "report.html")


def test_a_taxi_without_episodes_can_be_explored(taxi: SavedRun, tmp_path: Path) -> None:
    report.write(replace(taxi, recording=None), tmp_path / "report.html")
    words = read(tmp_path / "report.html").metadata
    assert words["episodes"] == []
    assert [field["name"] for field in words["fields"]] == ["row", "col", "fuel", "passenger"]
    assert words["actions"] == [[action.name.lower() for action in Action]]


def test_what_is_packed_is_unpacked() -> None:
    arrays: dict[str, Array] = {
        "bytes": np.arange(5, dtype=np.uint8),
        "whole": np.array([[-1, 2], [3, 4]], dtype=np.int32),
        "small": np.array([np.inf, -0.5], dtype=np.float32),
        "large": np.array([np.pi]),
    }
    words, unpacked = unpack(pack({"name": "é</script>"}, arrays))
    assert words == {"name": "é</script>"}
    for name, array in arrays.items():
        assert unpacked[name].dtype == array.dtype
        assert (unpacked[name] == array).all()


def coast(observations: Array) -> Array:
    """Engines off."""
    return np.zeros(len(observations), dtype=np.int64)


def test_every_continuous_step_is_compared_with_its_opposite(compose_config: Compose, tmp_path: Path) -> None:
    config = compose_config(
        "experiment=pendulum",
        "policy=function",
        "policy.function={_target_: tests.show.test_report.push, _partial_: true}",
        "training.steps=200",
        "explainer.fit_updates=1",
        "evaluation=none",
    )
    run = learned(config, Recorder(episodes=1, steps=5))
    report.write(run, tmp_path / "report.html")
    shown = read(tmp_path / "report.html")
    assert shown.metadata["actions"] == [["torque 0.50", "torque -0.50"]] * 5
    assert shown.arrays["options"].tolist() == np.arange(10).reshape(5, 2).tolist()
    assert len(shown.files) == 5


def push(observations: Array) -> Array:
    """The same torque always."""
    return np.full((len(observations), 1), 0.5, dtype=np.float32)


@pytest.mark.slow
def test_ten_episodes_of_two_hundred_steps_fit(compose_config: Compose, tmp_path: Path) -> None:
    config = compose_config(
        "experiment=lunar_lander",
        "policy=function",
        "policy.function={_target_: tests.show.test_report.coast, _partial_: true}",
        "training.steps=2000",
        "explainer.fit_updates=20",
        "evaluation=none",
    )
    run = learned(config, Recorder(episodes=30, steps=200))
    report.write(run, tmp_path / "report.html")
    shown = read(tmp_path / "report.html")
    assert len(shown.arrays["steps"]) >= LEAST_STEPS
    assert shown.metadata["left_out"] == 0
    assert (tmp_path / "report.html").stat().st_size < page.LARGEST


# steps that the simulator was asked about


def test_steps_before_ends_are_rolled_out_within_the_seconds_and_stand_beside_what_was_learned(
    taxi: SavedRun, taxi_report: Path, tmp_path: Path
) -> None:
    recording = taxi.recording
    assert recording is not None
    every = range(len(recording.episodes))
    assert roll_out_ahead(small(), None, 60, [0]) == []  # it is exact
    assert roll_out_ahead(taxi, None, 0, every) == []
    found = roll_out_ahead(taxi, None, 60, every)
    ends = {(one.episode, len(recording.episodes[one.episode]) - one.step) for one in found}
    terminated = [i for i in range(len(recording.episodes)) if recording.episodes[i].terminated[-1]]
    far_enough = [i for i in terminated if len(recording.episodes[i]) >= BEFORE_ENDS[0]]
    assert {(episode, BEFORE_ENDS[0]) for episode in far_enough[:MOST_STEPS]} <= ends
    assert 0 < len(found) <= MOST_STEPS
    report.write(taxi, tmp_path / "report.html", rolled_out=found)
    shown = read(tmp_path / "report.html")
    places, pairs = shown.arrays["rolled_out_options"], len(shown.arrays["support"])
    assert places.max() == pairs - 1
    assert (places[places >= 0] > shown.arrays["options"].max()).all()  # none of them is learned
    assert len(shown.metadata["rolled_out"]) == len(found)
    told = [one.relies_on for one in found if one.relies_on]
    said = [text for entry in shown.metadata["rolled_out_sentences"].values() for text in entry]
    assert told
    assert all("relies mainly on" in one and any(text.endswith(one) for text in said) for one in told)
    assert set(shown.metadata["obtained"].values()) <= {
        "by 50 rollouts",
        "by one rollout: policy and environment are deterministic here",
    }
    one = shown.metadata["rolled_out"][-1]
    columns = np.flatnonzero(places[one["state"]] >= 0)
    assert len(columns) in (1, 2)  # what was done, and a foil where there is one
    counts = shown.arrays["counts"][places[one["state"], columns]]
    last = found[-1].explanation
    powers = last.discount ** np.arange(last.horizon)
    totals = np.einsum("phk,h->pk", last.expected, powers)
    expected = {int(c): row for c, row in zip(found[-1].columns, totals, strict=True)}
    np.testing.assert_allclose(counts, [expected[int(c)] for c in columns], rtol=1e-5)
    plain = read(taxi_report)
    np.testing.assert_array_equal(plain.arrays["options"], shown.arrays["options"])
    assert "rolled_out_options" not in plain.arrays
    assert plain.metadata["rolled_out"] == []


def test_what_is_not_learned_is_marked_and_has_no_number(taxi: SavedRun, shown: Contents) -> None:
    legend, horizon = taxi.explainer.legend, taxi.explainer.predictor.horizon
    none = np.full((2, horizon, len(legend.names) + 1), Verdict.NOT_LEARNED, dtype=np.int8)
    verdicts = Verdicts(none, none, none[..., 0])
    silent = Explainer(taxi.explainer.predictor, taxi.explainer.policy, legend, verdicts)
    contents = gather(replace(taxi, explainer=silent), [0])
    for name in ("told_at", "told_by", "told_return", "told_end"):
        assert not contents.arrays[name].any()
    assert contents.metadata["turning_points"] == []
    said = [text for entry in contents.metadata["sentences"] for text in entry if text]
    assert all("Not learned" in text or "never tried" in text for text in said)
    foreseen = [text for text in said if "partly unknown" not in text]  # from which step on is no forecast
    assert foreseen
    assert not any(re.search(r"\d", text) for text in foreseen)
    assert "told_at" not in shown.arrays


def test_the_worst_and_the_best_episodes_are_shown_first() -> None:
    run = small()
    assert run.recording is not None
    returns = episode_returns(run.recording.episodes)
    ranked = page.ranked_episodes(run.recording)
    assert sorted(ranked) == list(range(len(returns)))
    assert returns[ranked[0]] == returns.min()
    assert returns[ranked[1]] == returns.max()
    two = sorted(ranked[:2])
    contents = gather(run, two)
    assert contents.metadata["numbers"] == two
    begins = contents.arrays["begins"]
    lengths = [len(run.recording.episodes[number]) for number in two]
    assert begins.tolist() == [0, lengths[0]]
    assert len(contents.arrays["happened"]) == sum(lengths)
    shown = gather(run, sorted(ranked))
    assert shown.metadata["numbers"] == list(range(len(returns)))
    begin = int(shown.arrays["begins"][two[1]])
    np.testing.assert_array_equal(
        contents.arrays["happened"][lengths[0] :], shown.arrays["happened"][begin : begin + lengths[1]]
    )
