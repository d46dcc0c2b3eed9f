"""Questions to finished runs, as users ask them."""

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import yaml
from matplotlib.figure import Figure
from mlflow import MlflowClient

from tests.support.commands import IN_TURN, ROOT, tpd_run
from tpd.answers.turning_points import turning_points
from tpd.answers.what_if import returns
from tpd.evaluation.played_return import episode_returns
from tpd.predictors.explainer import Explainer
from tpd.predictors.unlearned import Unlearned
from tpd.run import explain as answer
from tpd.run import moments
from tpd.run.question import Question, parse
from tpd.sources.episodes import some_episodes
from tpd.sources.forks import Forks
from tpd.sources.moments import Moment
from tpd.store import saved_runs
from tpd.store.explanations import load_explanation
from tpd.store.saved_runs import SavedRun

SMALL = ("policy.steps=150_000", "training.steps=100_000", "evaluation=none", "tracking.register=taxi")
HERE = ("row=2", "col=0", "fuel=6", "passenger=false")


class Store(NamedTuple):
    """Two seeds of FuelTaxi in a store."""

    folder: Path
    sweep: str
    seeds: tuple[str, str]
    """The ids of the runs of seeds 0 and 1"""

    @property
    def uri(self) -> str:
        return f"sqlite:///{self.folder}/mlflow.db"

    def job(self, seed: int) -> Path:
        (found,) = self.folder.glob(f"outputs/sweeps/*/{seed}")
        return found

    def read(self, seed: int) -> SavedRun:
        return saved_runs.read(self.job(seed))


Ask = Callable[..., str]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    folder = tmp_path_factory.mktemp("asked")
    tpd_run(folder, "-m", *SMALL, "seed=0,1", "overview=false", IN_TURN, store=True)
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("tpd")
    assert experiment is not None
    runs = {
        run.data.params.get("seed"): run.info.run_id for run in client.search_runs([experiment.experiment_id])
    }
    return Store(folder, runs[None], (runs["0"], runs["1"]))


@pytest.fixture
def ask_and_draw(store: Store, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Ask:
    """Asks, and gives what is printed, spaces and line breaks as one space."""

    def asked(*arguments: str) -> str:
        answer.main([*arguments, f"store={store.uri}", f"out={tmp_path}"])
        return re.sub(r"\s+", " ", capsys.readouterr().out)

    return asked


@pytest.fixture
def ask(ask_and_draw: Ask, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """As above, but no figure is rendered: that takes longer than the answer."""
    monkeypatch.setattr(Figure, "savefig", lambda *arguments, **settings: None)
    return ask_and_draw


def number(text: str, pattern: str) -> float:
    found = re.search(pattern, text)
    assert found is not None, text
    return float(found[1])


def test_the_sentences_have_the_numbers_of_the_explanation(
    store: Store, ask_and_draw: Ask, tmp_path: Path
) -> None:
    said = ask_and_draw(f"run={store.seeds[0]}", *HERE, "action=south", "foil=east")
    run = store.read(0)
    state = run.env.state({"row": 2, "col": 0, "fuel": 6, "passenger": False})
    names = run.explainer.legend.names
    south, east = run.explainer.explain(np.repeat(state, 2), np.array([0, 2])).expected
    pickup = np.cumsum(south[:, names.index("first pickup")])
    assert number(said, r"pickup at step (\d+)") == (pickup >= 0.1 * pickup[-1]).argmax()
    risk = south[:, names.index("first failure")].sum()
    assert number(said, r"Risk of failure (\d+) %") == round(100 * risk)
    explained = run.explainer.to_the_end(run.explainer.explain(np.repeat(state, 2), np.array([0, 2])))
    assert explained.beyond is not None
    both = returns(explained, {}) + explained.beyond.mean
    assert f"({both.max():.2f}" in said
    assert f"{both.min():.2f})" in said
    drawn = load_explanation(tmp_path / "explanation.npz")
    np.testing.assert_array_equal(drawn.expected, np.stack([south, east]))
    assert (tmp_path / "explanation.png").stat().st_size > 10_000


def test_a_state_may_be_named_in_every_way(store: Store, ask: Ask) -> None:
    run = f"run={store.seeds[0]}"
    index = int(store.read(0).env.state({"row": 2, "col": 0, "fuel": 6, "passenger": False}))
    by_fields = ask(run, *HERE)
    assert ask(run, f"state={index}") == by_fields
    assert ask(run, "state={row: 2, col: 0, fuel: 6, passenger: false}") == by_fields
    recording = store.read(0).recording
    assert recording is not None
    name = store.read(0).env.name_of_state(recording.episodes[3].observation[2])
    assert f"episode 3, step 2: {name}" in ask(run, "episode=3", "step=2")
    assert "episode 0, step 0" in ask(run, "state=start")
    assert "episode 0, step 0" in ask(run, "what_if=failure")  # the start, if nothing else is said


def test_a_run_may_be_named_in_every_way(store: Store, ask: Ask) -> None:
    by_id = ask(f"run={store.seeds[1]}", *HERE)
    assert ask("run=models:/taxi@seed-1", *HERE) == by_id
    assert ask(f"run={store.job(1)}", *HERE) == by_id


def test_without_names_the_agents_action_meets_the_best_of_the_others(store: Store, ask: Ask) -> None:
    run = store.read(0)
    state = run.env.state({"row": 2, "col": 0, "fuel": 6, "passenger": False})[None]
    own = run.env.name_of_action(run.explainer.policy.action(state)[0])
    assert f"{own} against" in ask(f"run={store.seeds[0]}", *HERE)


def test_what_the_forecast_relies_on_is_told_where_it_is_asked_for(
    store: Store, ask_and_draw: Ask, tmp_path: Path
) -> None:
    run, ask = f"run={store.seeds[0]}", ask_and_draw
    said = ask(run, *HERE, "action=south", "foil=east", "drivers=failure", "by=9")
    assert re.search(r"The forecast of failure by step 9 after south \(\d+ %; .* relies mainly on", said)
    assert "not what causes the event" in said
    assert (tmp_path / "drivers.png").stat().st_size > 5000
    plain = ask(run, *HERE, "action=south", "foil=east")
    assert "The forecast of" not in plain
    with pytest.raises(SystemExit, match=r"by=9 \(a step\) needs drivers"):
        ask(run, *HERE, "by=9")
    with pytest.raises(SystemExit, match="drivers must be true or the name of an event"):
        ask(run, *HERE, "drivers=[failure]")


def test_the_nearest_state_where_the_agent_does_the_foil_is_named(store: Store, ask: Ask) -> None:
    said = ask(f"run={store.seeds[0]}", *HERE, "foil=east")
    found = re.search(r"With (\w+) (\w+) instead of (\w+), all else equal, the agent would choose east", said)
    assert found is not None, said
    there = {"row": 2, "col": 0, "fuel": 6, "passenger": False, found[1]: yaml.safe_load(found[2])}
    run = store.read(0)
    assert run.explainer.policy.action(run.env.state(there)[None])[0] == run.env.action("east")


def test_states_and_runs_are_compared_too(store: Store, ask: Ask) -> None:
    states = ask(f"run={store.seeds[0]}", *HERE, "foil_state={row: 2, col: 0, fuel: 20, passenger: false}")
    assert "in (2, 0), fuel 6, passenger waiting against" in states
    assert "in (2, 0), fuel 20, passenger waiting" in states
    seeds = ask(f"run={store.seeds[0]}", f"against={store.seeds[1]}", *HERE)
    assert re.search(r"tpd, seed 0 \(\w+\) against tpd, seed 1 \(\w+\)", seeds)


def test_what_if_names_the_reward_at_which_the_foil_overtakes(
    store: Store, ask_and_draw: Ask, tmp_path: Path
) -> None:
    run = f"run={store.seeds[0]}"
    here = (*HERE, "action=south", "foil=east")
    said = ask_and_draw(run, *here, "what_if=move", "rewards.move=-3", "resolve=true")
    drawn = {path.stem for path in tmp_path.glob("*.png")}
    assert drawn == {"explanation", "returns", "what_if_move", "fragile_move", "fragile_map_move"}
    assert "ith the rest of the policy unchanged, " in said
    assert "re-solved" in said
    at = re.search(r"overtakes (\w+) at a move (penalty|reward) of ([\d.e+]+)", said)
    assert at is not None
    reward = (-1 if at[2] == "penalty" else 1) * float(at[3])
    explainer, env = store.read(0).explainer, store.read(0).env
    state = env.state({"row": 2, "col": 0, "fuel": 6, "passenger": False})
    south, east = returns(explainer.explain(np.repeat(state, 2), np.array([0, 2])), {"move": reward})
    assert south == pytest.approx(east, rel=1e-2, abs=0.05)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["row=9", "col=0", "fuel=6", "passenger=false"], "row and col must be 0 to 4"),
        (["state=5000"], "has 1050 states"),
        (["episode=0", "stp=3"], "'stp': there is no such setting"),
        (["rolouts=0"], "(it has row, col, fuel, passenger); did you mean rollouts?"),
        (["episode=99", "step=0"], "the recorded episodes are 0 to 9"),
        (["episode=0", "step=999"], "has no step 999"),
        ([*HERE, "action=up"], "has no action 'up'; the actions are south"),
        ([*HERE, "action=south", "foil=south"], "both south"),
        ([*HERE, "what_if=luck"], "'luck' is not an outcome"),
        ([*HERE, "rewards.luck=2"], "'luck' is not an outcome"),
        ([*HERE, "drivers=failures"], "there is no outcome 'failures'"),
    ],
)
def test_what_cannot_be_answered_is_refused_in_one_line(
    store: Store, ask: Ask, arguments: list[str], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as refusal:
        ask(f"run={store.seeds[0]}", *arguments)
    assert not capsys.readouterr().out
    assert complaint in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_runs_that_cannot_be_asked_say_why(store: Store, ask: Ask) -> None:
    with pytest.raises(SystemExit, match=f"is a sweep; ask one of its runs: .*{store.seeds[0]}"):
        ask(f"run={store.sweep}")
    with pytest.raises(SystemExit, match="run=nowhere is neither"):
        ask("run=nowhere")


def test_questions_that_are_no_questions_are_refused() -> None:
    for arguments, complaint in (
        (["row=2"], "run is missing"),
        (["run=x", "what"], "key=value"),
        (["run=x", "state=1", "row=2"], "or row, not both"),
        (["run=x", "state=1", "state=2"], "state= is duplicated"),
        (["run=x", "state=1", "state.row=2"], "pass either state= or state.row=, not both"),
        (
            ["run=x", "rewards.failure=1", "rewards={failure: 2}"],
            "pass either rewards= or rewards.failure=, not both",
        ),
        (["run="], "run is missing"),
        (["run=x", "against="], "against= is empty"),
        (["run=x", "rewards=[1,2]"], "rewards must be given by name"),
        (["run=x", "rewards.a=many"], "rewards.a must lie in"),
        (["run=x", "resolve=perhaps"], "resolve must be true or false"),
        (["run=x", "rollouts=-1"], "rollouts must be 0 or more"),
        (["run=x", "precision=0"], "precision must lie in"),
        (["run=x", "trust={a: b}"], "trust must be a list of modules"),
        (["run=x", "state={"], "'state={' is not valid YAML"),
    ):
        with pytest.raises(ValueError, match=complaint):
            parse(arguments)


def test_names_are_taken_as_they_are_typed() -> None:
    asked = parse(["run=12345678901234567890123456789012", "against=1e5", "what_if=[failure]", "trust=mine"])
    assert (asked.run, asked.against) == ("12345678901234567890123456789012", "1e5")
    assert (asked.what_if, asked.trust) == ("[failure]", ("mine",))


def test_help_comes_without_a_run(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "explain.py"), "--help"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "tpd-explain run=" in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_misspelt_run_is_told_the_nearest_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "outputs/runs/2026-11-18_10-00-00"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / saved_runs.CONFIG).touch()
    for word, near in (
        ("mine", "run=mine"),
        ("mime", "run=mine"),
        ("run=mime", "run=mine"),
        ("run=2026-11-18_10-00", "run=outputs/runs/2026-11-18_10-00-00"),
    ):
        with pytest.raises(SystemExit, match=rf"did you mean {near}\?"):
            answer.main([word])


# moments worth asking about


def test_without_a_question_the_moments_worth_asking_about_are_listed(
    store: Store, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = ask(f"run={store.seeds[0]}")
    assert "moments worth asking about (by the table)" in said
    commands = re.findall(r"tpd-explain (.*?) episode=(\d+) step=(\d+)", said)
    assert 1 <= len(commands) <= 6 + 1
    recorded = store.read(0).recording
    assert recorded is not None
    [others] = re.findall(r"the other recorded episodes \(with their returns\): (.*)", said)
    listed = {int(number) for number in re.findall(r"(\d+) \(", others)}
    told = {int(number) for number in re.findall(r"episode (\d+), step", said)}
    assert listed == {*range(len(recorded.episodes))} - told
    settings, episode, step = commands[0]
    assert settings == f"run={store.seeds[0]} store={store.uri}"
    run = store.read(0)
    points = turning_points(run.explainer, run.recording)  # type: ignore[arg-type]
    assert (int(episode), int(step)) == (points["episode"][0], points["step"][0])
    assert f"the probability of {points['outcome'][0].removeprefix('first ')} within 30 steps " in said
    place = f"episode={episode}", f"step={step}"
    assert f"episode {episode}, step {step}: " in ask(settings.split()[0], *place)
    monkeypatch.setattr(moments, "LEAST_IN_TABLE", 1.1)
    assert "no step before the last of a recorded episode" in ask(f"run={store.seeds[0]}")


def test_without_a_table_they_are_rolled_out_the_worst_episode_first(store: Store) -> None:
    run = store.read(0)
    unlearned = Explainer(Unlearned(10, run.outcomes().width), run.explainer.policy, run.explainer.legend)
    assert run.recording is not None
    some = replace(run, explainer=unlearned, recording=some_episodes(run.recording, [0, 1, 2]))
    said = moments.worth_asking(Question("here", seconds=600), some)
    assert "(by rollouts" in said
    worst = int(episode_returns(some.recording.episodes).argmin())  # type: ignore[union-attr]
    assert said.splitlines()[1].startswith(f"episode {worst}, step ") or "no step before the last" in said


def test_a_list_of_actions_is_a_foil(store: Store, ask: Ask) -> None:
    assert "East 2 times instead: " in ask(f"run={store.seeds[0]}", *HERE, "foil=[east, east]")
    with pytest.raises(SystemExit, match="it chooses refuel, which is not valid in"):
        ask(f"run={store.seeds[0]}", *HERE, "foil=[refuel, refuel]")


# by rollouts


def test_a_moment_is_asked_of_the_simulator_and_what_was_learned_is_said_beside_it(
    store: Store, ask: Ask, tmp_path: Path
) -> None:
    run = f"run={store.seeds[0]}"
    said = ask(run, "episode=3", "step=2")
    rolled = load_explanation(tmp_path / "explanation.npz")
    assert rolled.rollouts is not None
    count = len(rolled.rollouts)
    assert 20 <= count <= 203
    assert f"from the simulator, by {count} rollouts" in said
    assert "Learned predictions, compared with the rollouts" in said
    assert "error" in said
    np.testing.assert_allclose(rolled.expected, rolled.rollouts.mean(axis=0), atol=1e-6)
    learned = store.read(0).explainer.explain(rolled.observations, rolled.actions)
    assert not np.array_equal(learned.expected, rolled.expected)  # nothing of it is mixed in
    again = ask(run, "episode=3", "step=2", "rollouts=50")
    assert "by 50 rollouts" in again


def test_without_rollouts_or_without_a_moment_the_answer_says_that_it_is_learned(
    store: Store, ask: Ask, tmp_path: Path
) -> None:
    run = f"run={store.seeds[0]}"
    assert "learned; the simulator was not used: rollouts=0" in ask(run, "episode=3", "step=2", "rollouts=0")
    assert load_explanation(tmp_path / "explanation.npz").rollouts is None
    said = ask(run, *HERE)
    assert "learned; the simulator was not used" in said
    assert "only an observation is given" in said
    assert "compared with the rollouts" not in said


def test_what_cannot_be_forked_is_answered_by_what_was_learned(
    store: Store, ask: Ask, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(self: Forks, moment: Moment) -> None:
        raise ValueError("FuelTaxi cannot be forked: it gives another observation after 2 steps")

    monkeypatch.setattr(Forks, "_lead_to", refused)
    said = ask(f"run={store.seeds[0]}", "episode=3", "step=2")
    assert "learned; the simulator was not used: FuelTaxi cannot be forked" in said


def test_rolled_out_states_and_runs_are_compared_and_rewards_changed(store: Store, ask: Ask) -> None:
    run = f"run={store.seeds[0]}"
    seeds = ask(run, f"against={store.seeds[1]}", "episode=0", "step=1", "rollouts=40")
    assert "by 40 rollouts" in seeds
    assert re.search(r"tpd, seed 0 \(\w+\) against tpd, seed 1 \(\w+\)", seeds)
    steps = ask(run, "episode=0", "step=1", "foil_state={episode: 0, step: 3}", "rollouts=40")
    assert "by 40 rollouts" in steps
    mixed = ask(run, "episode=0", "step=1", "foil_state={row: 2, col: 0, fuel: 6, passenger: false}")
    assert "learned; the simulator was not used" in mixed  # of one of them it cannot be
    priced = ask(run, "episode=0", "step=1", "what_if=move", "rewards.move=-3", "rollouts=40")
    assert "with these" in priced  # the heading may be wrapped
    assert "in brackets: 90% bands" in priced
    assert "ith the rest of the policy unchanged, " in priced or "the data do not say" in priced


@pytest.mark.parametrize(
    ("wrong", "reason"), [("rollouts=1", "rollouts must be 2 or more"), ("precision=0", "precision")]
)
def test_rollouts_that_cannot_be_are_refused(
    store: Store, wrong: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match=reason):
        answer.main([f"run={store.seeds[0]}", "episode=3", "step=2", f"store={store.uri}", wrong])
