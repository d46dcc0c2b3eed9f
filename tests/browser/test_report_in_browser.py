"""The report as people see it: in a browser, offline and inside the MLflow UI."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Dialog, FrameLocator, Page, expect

from tests.browser.finished_sweep import Sweep
from tests.support.reports import HOSTILE, small
from tests.support.sentences import paragraph
from tpd.answers import what_if
from tpd.answers.resolve import resolve
from tpd.answers.sentences.overtakes import overtakes
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explanation
from tpd.core.formats import percent, price, worth
from tpd.core.outcomes import FIRST
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.rivals.reward_decomposition import RewardDecomposition
from tpd.predictors.rivals.temporal_reward import TemporalReward
from tpd.run.overview import OVERVIEW, REPORT
from tpd.show import report
from tpd.show.report.packing import LEVELS
from tpd.store.saved_runs import SavedRun

pytestmark = pytest.mark.browser

STEP = 3
REWARDS = {"failure": -12.5, "dropoff": 3.0}
READY = "body[data-ready]"
PATIENCE = 60_000
"""Milliseconds that the MLflow UI may take on a busy machine."""


def every_action(run: SavedRun, state: int) -> Explanation:
    actions = np.arange(run.env.num_actions)
    return run.explainer.explain(np.full(len(actions), state), actions, draws=ENOUGH_DRAWS)


def contrast(run: SavedRun, state: int, fact: int, foil: int) -> Contrast:
    every = every_action(run, state)
    return every[fact : fact + 1] - every[foil : foil + 1]


def said(run: SavedRun, state: int, fact: int, foil: int) -> str:
    """The paragraph as Python says it."""
    states = np.array([state])
    returns = run.explainer.action_returns(states)
    best = int(run.explainer.favoured(returns, np.array([fact]), run.env.mask(states))[0])
    third = None if best in (fact, foil) else (run.env.name_of_action(best), float(returns[0, best]))
    own, other = run.env.name_of_action(fact), run.env.name_of_action(foil)
    tie = run.explainer.predictor.tie
    return paragraph(contrast(run, state, fact, foil), 0, own, other, own, tie, third)


def drawn(frame: FrameLocator | Page, chart: str) -> dict[str, Any]:
    """The traces of a chart, by name."""
    traces = frame.locator(f"#{chart}").evaluate("chart => chart.data.map(t => [t.name, Array.from(t.y)])")
    return dict(traces)


def table(frame: FrameLocator | Page, column: int) -> dict[int, str]:
    """A column of the table of all actions, by action."""
    rows = frame.locator("#returns tbody tr").evaluate_all(
        f"rows => rows.map(row => [Number(row.dataset.column), row.cells[{column}].textContent])"
    )
    return dict(rows)


def check_bands(frame: FrameLocator | Page, every: Explanation, fact: int) -> None:
    """The bands of first occurrences are drawn, as the explanation has them."""
    frame.locator("#view").select_option("by")
    traces = frame.locator("#future").evaluate("chart => chart.data.map(t => Array.from(t.y))")
    firsts = [k for k, name in enumerate(every.legend.names) if name.startswith(FIRST)]
    for i, k in enumerate(firsts):
        for end, bound in enumerate(every.sum_band()):
            assert traces[2 * i + end] == pytest.approx(bound[fact, :, k].clip(0, 1), abs=1 / LEVELS)
    frame.locator("#view").select_option("each")


def rewards_changed(frame: FrameLocator | Page) -> None:
    for name, reward in REWARDS.items():
        frame.get_by_label(f"reward of {name}", exact=True).fill(str(reward))


def learned_shown(frame: FrameLocator | Page) -> None:
    """Show what was learned, where the simulator was asked too."""
    other = frame.locator("#other-answer")
    if other.is_visible() and other.inner_text() == "Show what was learned":
        other.click()


def check_numbers(frame: FrameLocator | Page, run: SavedRun) -> None:
    """Move, pick a foil, change rewards: everything shown is what the explanation says."""
    assert run.recording is not None
    episode = run.recording.episodes[1]
    state, fact = int(episode.observation[STEP]), int(episode.action[STEP])
    valid = np.flatnonzero(run.env.mask(np.array([state]))[0])
    every = every_action(run, state)
    frame.locator("#episode").select_option("1")
    frame.locator("#step").fill(str(STEP))
    expect(frame.locator("#state")).to_have_text(run.env.name_of_state(state))
    learned_shown(frame)

    legend = run.explainer.legend
    traces = drawn(frame, "future")
    for name in legend.partition:
        column = every.expected[fact, :, legend.names.index(name)]
        assert traces[name] == pytest.approx(column, abs=1 / LEVELS)
    assert len(traces["actually happened"]) == min(run.explainer.predictor.horizon, len(episode) - STEP)

    check_bands(frame, every, fact)

    returns = what_if.returns(every, {})
    shown = table(frame, 1)
    assert set(shown) == set(valid.tolist())
    for action, text in shown.items():
        unknown = "unknown" if every.known[action] else "never tried: unknown"
        low, high = (float(end[action, -1]) for end in every.return_band())
        sure = f"{worth(returns[action])} ({worth(low)} to {worth(high)})"
        assert text == (unknown if np.isnan(returns[action]) else sure)

    told = every.foreseen[:, -1] & ~every.sparse
    foil = int([action for action in valid if action != fact and told[action]][-1])
    frame.locator("#foil").select_option(str(foil))
    expect(frame.locator("#sentence")).to_have_text(said(run, state, fact, foil))
    difference = contrast(run, state, fact, foil)
    assert drawn(frame, "contrast")["total"] == pytest.approx(difference.expected_return[0], abs=0.01)

    rewards_changed(frame)
    valued = what_if.valued(difference.fact, REWARDS) - what_if.valued(difference.foil, REWARDS)
    names = [run.env.name_of_action(action) for action in (fact, foil)]
    expect(frame.locator("#overtaking")).to_have_text(overtakes(valued, 0, list(REWARDS)[-1], *names))
    returns = what_if.returns(every, REWARDS)
    for action, text in table(frame, 2).items():
        assert text == ("" if np.isnan(returns[action]) else worth(returns[action]))
    assert drawn(frame, "contrast")["total"] == pytest.approx(valued.expected_return[0], abs=0.01)

    frame.locator("#solve").click()
    anew = resolved(run)
    best = int(anew.action(np.array([state]))[0])
    taken = f"the optimal policy takes {run.env.name_of_action(best)}"
    expect(frame.locator("#solved")).to_contain_text(taken)
    frame.locator("#reset").click()
    expect(frame.locator("#solved")).to_have_text("")
    assert table(frame, 1) == shown


def resolved(run: SavedRun) -> Any:
    assert run.env.model is not None
    return resolve(run.env.model, run.outcomes(), REWARDS, run.explainer.policy.discount)


def open_file(page: Page, path: Path) -> None:
    page.goto(path.as_uri())
    page.wait_for_selector(READY)


@pytest.mark.parametrize("page", [1280], indirect=True)
def test_the_report_opens_inside_the_ui(page: Page, ui: str, sweep: Sweep, screenshots: Path) -> None:
    page.goto(f"{ui}/#/experiments/{sweep.experiment}/runs/{sweep.parent}")
    expect(page.get_by_text("fuel_taxi sweep").first).to_be_visible(timeout=PATIENCE)
    page.screenshot(path=screenshots / "parent.png")
    page.get_by_role("tab", name="Artifacts").click()
    page.get_by_text("plots", exact=True).first.click(timeout=PATIENCE)
    page.get_by_text("figure_1_seed_0.png", exact=True).first.click(timeout=PATIENCE)
    picture = page.locator("img[src^='blob:'], img[src*='figure_1']").first
    expect(picture).to_be_visible(timeout=PATIENCE)
    assert picture.evaluate("image => image.naturalWidth") > 0
    page.screenshot(path=screenshots / "plot.png")
    page.get_by_text(OVERVIEW, exact=True).first.click()
    page.get_by_text(REPORT, exact=True).first.click(timeout=PATIENCE)
    frame = page.frame_locator("iframe")
    frame.locator(READY).wait_for(timeout=PATIENCE)
    page.screenshot(path=screenshots / "report_in_ui.png")
    check_numbers(frame, sweep.run)


def test_the_report_works_offline_in_one_file(page: Page, sweep: Sweep, screenshots: Path) -> None:
    asked = list[str]()
    page.on("request", lambda request: asked.append(request.url))
    open_file(page, sweep.report)
    check_numbers(page, sweep.run)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    width = page.viewport_size["width"] if page.viewport_size else 0
    page.screenshot(path=screenshots / f"report_{width}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_every_state_can_be_explored(page: Page, sweep: Sweep, screenshots: Path) -> None:
    open_file(page, sweep.report)
    page.get_by_role("button", name="Any state").click()
    for field, value in {"row": 2, "col": 0, "fuel": 6, "passenger": 0}.items():
        page.get_by_role("slider", name=field, exact=True).fill(str(value))
    state = int(sweep.run.env.state({"row": 2, "col": 0, "fuel": 6, "passenger": False}))
    expect(page.locator("#state")).to_have_text(sweep.run.env.name_of_state(state))
    fact = int(sweep.run.explainer.policy.action(np.array([state]))[0])
    foil = int(page.locator("#foil").input_value())
    expect(page.locator("#sentence")).to_have_text(said(sweep.run, state, fact, foil))
    assert drawn(page, "future")["actually happened"] == []
    width = page.viewport_size["width"] if page.viewport_size else 0
    page.screenshot(path=screenshots / f"explorer_{width}.png", full_page=True)


@pytest.mark.parametrize("page", [1280], indirect=True)
def test_the_task_solved_anew_is_that_of_python_in_all_states(page: Page, sweep: Sweep) -> None:
    open_file(page, sweep.report)
    solve = """async rewards => {
        const book = new Book(unpacked(await inflated("data")));
        const solution = solved(book, book.outcomes.map(o => rewards[o.name] ?? o.weight));
        return Array.from({length: book.shapes.model_valid[0]}, (_, s) => solution.choice(s));
    }"""
    states = np.arange(sweep.run.env.table_shape()[0])
    assert page.evaluate(solve, REWARDS) == resolved(sweep.run).action(states).tolist()


@pytest.mark.parametrize("page", [1280], indirect=True)
def test_numbers_read_as_they_do_in_python(page: Page, sweep: Sweep) -> None:
    open_file(page, sweep.report)
    small = 10.0 ** -np.arange(1, 12)
    shares = np.concatenate([np.linspace(0, 1, 401), small, 1 - small])
    amounts = np.concatenate([shares, -shares, [12.345, 0.0625, -0.0123, 123456, 1e-7, 99.995]])
    for call, values, expected in (
        ("percent(value)", shares.tolist(), percent),
        ("worth(value)", amounts.tolist(), worth),
        ("significant(value, 4)", amounts.tolist(), price),
    ):
        script = f"""async values => {{
            const {{ formats }} = new Book(unpacked(await inflated("data")));
            return values.map(value => formats.{call});
        }}"""
        assert page.evaluate(script, values) == [expected(value) for value in values], call


def test_the_keyboard_does_everything(page: Page, sweep: Sweep) -> None:
    open_file(page, sweep.report)
    shown = page.locator("#step-shown")
    page.keyboard.press("ArrowRight")
    expect(shown).to_contain_text("step 1 of")
    page.keyboard.press("ArrowDown")
    assert page.locator("#episode").input_value() == "1"
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_contain_text("Pause")
    page.keyboard.press("Space")
    expect(page.locator("#play")).to_contain_text("Play")
    reached = set[str]()
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.ariaLabel"))
    controls = ["episode", "play", "step", "foil", "view", "reset", "solve", "explore", "play-episodes"]
    assert {*controls, "reward of failure", "reward of failure, slider"} <= reached


def test_names_of_strangers_run_nothing(browser: Browser, tmp_path: Path) -> None:
    report.write(small((HOSTILE, "b", "c"), event_name=HOSTILE, name=HOSTILE), tmp_path / "report.html")
    page, dialogs = browser.new_page(), list[str]()

    def note(dialog: Dialog) -> None:
        dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", note)
    open_file(page, tmp_path / "report.html")
    page.locator("#step").fill("2")
    page.locator("#foil").select_option(index=0)
    expect(page.locator("h1")).to_have_text(f"{HOSTILE}, seed 0")
    expect(page.locator("#key li").first).to_have_text(HOSTILE)
    assert HOSTILE in page.locator("#returns").inner_text()
    assert page.locator("script").count() == 5
    page.close()
    assert dialogs == []


def test_the_page_runs_no_script_but_its_own_and_loads_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    report.write(small(("a", "b", "c")), path)
    evil = "<script>document.title = 'ran'</script><img src='https://example.com/x.png' onerror='alert(1)'>"
    path.write_text(path.read_text().replace("<header>", f"<header>{evil}", 1))
    page, refused, answered = browser.new_page(), list[str](), list[str]()
    page.on("console", lambda message: refused.append(message.text))
    page.on("response", lambda response: answered.append(response.url))
    page.on("requestfailed", lambda request: answered.append(f"{request.url}: {request.failure}"))
    open_file(page, path)
    expect(page.locator("h1")).to_be_visible()
    assert page.title() != "ran"
    page.close()
    assert sum("Content Security Policy" in text for text in refused) >= 3
    assert [told for told in answered if told.startswith("http")] in (
        [],
        ["https://example.com/x.png: csp"],  # by the policy, before anybody is asked
    )


@pytest.mark.parametrize("page", [1280], indirect=True)
def test_the_page_becomes_interactive(page: Page, sweep: Sweep) -> None:
    open_file(page, sweep.report)
    ready = float(page.locator("body").get_attribute("data-ready") or "nan") / 1000
    assert ready > 0


def test_steps_that_were_rolled_out_are_marked_and_what_was_learned_is_one_click_away(
    page: Page, sweep: Sweep
) -> None:
    open_file(page, sweep.report)
    steps = page.locator("#rolled-out button")
    assert steps.count() > 0
    steps.first.click()
    expect(page.locator("#obtained-how")).to_contain_text("From the simulator, by ")
    expect(page.locator("#future-title")).to_contain_text("By rollouts after")
    assert page.locator("#returns thead").inner_text().split().count("rollouts") == 1
    rolled_out = page.locator("#sentence").inner_text()
    page.locator("#other-answer").click()
    expect(page.locator("#obtained-how")).to_have_text("Learned")
    assert page.locator("#sentence").inner_text() != rolled_out
    page.locator("#other-answer").click()
    expect(page.locator("#sentence")).to_have_text(rolled_out)


@pytest.mark.parametrize("kind", [RewardDecomposition, TemporalReward])
def test_a_method_without_a_horizon_shows_its_own_quantity(
    kind: type[ReplayedFHTD], page: Page, tmp_path: Path, screenshots: Path
) -> None:
    run, path = small(("a", "b", "c"), counting=kind), tmp_path / "report.html"
    report.write(run, path)
    open_file(page, path)
    first = run.recording.episodes[0][:1]  # type: ignore[union-attr]
    explained = run.explainer.explain(first.observation, first.action)
    axis = "y" if kind is TemporalReward else "x"
    (bars,) = page.locator("#future").evaluate(f"chart => chart.data.map(t => Array.from(t.{axis}))")
    if kind is RewardDecomposition:  # its last bar is the return
        assert bars.pop() == pytest.approx(explained.expected_return[0, -1], abs=0.01)
    assert sum(bars) == pytest.approx(explained.expected_return[0, -1], abs=0.01)
    assert len(bars) == (5 if kind is TemporalReward else len(explained.component_names))
    expect(page.locator("#what-if")).to_be_visible(visible=kind is RewardDecomposition)
    expect(page.locator("#view-choice")).to_be_hidden()
    expect(page.locator("#sentence")).to_contain_text("over an infinite horizon")
    expect(page.locator("#returns")).not_to_contain_text("not learned")
    page.screenshot(path=screenshots / f"{kind.__name__}.png", full_page=True)
