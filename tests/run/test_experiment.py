"""From the command line to the store: one run, a sweep, and what they leave behind."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from mlflow.entities import Run as MlflowRun

from tests.support import Compose
from tests.support.commands import IN_TURN, ROOT, tpd_run
from tpd.envs.fuel_taxi.rules import Action
from tpd.evaluation.errors import METRICS
from tpd.run.parts import build
from tpd.run.summary import Job, alike
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.store import explainers
from tpd.store.explanations import load_explanation
from tpd.store.tables import read_errors, read_table
from tpd.tracking.mlflow_runs import MlflowTracking

SMALL = [
    "experiment=paper",
    "policy.steps=20000",
    "training.steps=60000",
    "evaluation.episodes=200",
    "evaluation.curve_episodes=50",
    "evaluation.curve_points=4",
    "evaluation.forecast_episodes=50",
    "recording.episodes=0",
    "overview=false",
]
ONE_FIGURE = ["~figures.figure_1", "evaluation.forecast_episodes=0"]
"""Figure 2 alone, where no other is looked at: drawing takes longer than all else."""
EVENTS = ("dropoff", "pickup", "refuel", "failure", "traffic", "move", "invalid")


def runs(folder: Path, role: str | None) -> list[MlflowRun]:
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("paper")
    assert experiment is not None
    every = client.search_runs([experiment.experiment_id])
    return [run for run in every if run.data.tags.get("tpd.role") == role]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where seed 1 was run alone."""
    folder = tmp_path_factory.mktemp("alone")
    tpd_run(folder, *SMALL, "seed=1", store=True)
    return folder


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder where seeds 0 and 1 were run in parallel, and what the terminal showed."""
    folder = tmp_path_factory.mktemp("sweep")
    words = [*SMALL, "~figures.figure_1", "seed=range(2)", "hydra.launcher.n_jobs=2"]
    return folder, tpd_run(folder, "-m", *words, store=True).stdout


def output_of(folder: Path, job: str) -> Path:
    (found,) = folder.glob(job)
    return found


def test_one_run_leaves_everything_in_its_folder(alone: Path) -> None:
    output = output_of(alone, "outputs/runs/*")
    left = {str(path.relative_to(output)) for path in output.rglob("*") if path.is_file()}
    plots = {"plots/figure_1.png", "plots/figure_2.png", "plots/reliability.png"}
    explained = {"figure_1.npz", "figure_2.npz", "explainer/arrays.npz", "explainer/explainer.json"}
    found = {"errors.json", "metrics.json", "curve.json", "forecasts.json"}
    assert plots | explained | found | {"config.yaml"} <= left


def test_figures_are_kept_as_they_were_explained(alone: Path) -> None:
    output = output_of(alone, "outputs/runs/*")
    shown = load_explanation(output / "figure_2.npz")
    again = explainers.load(output / "explainer").explain(shown.observations, shown.actions)
    np.testing.assert_allclose(shown.expected, again.expected, atol=1e-6)
    np.testing.assert_allclose(shown.running, again.running, atol=1e-5)
    np.testing.assert_array_equal(shown.support, again.support)
    assert shown.legend == again.legend
    assert list(shown.actions) == [Action.SOUTH, Action.EAST]


def test_forecasts_are_compared_with_what_happened(alone: Path) -> None:
    table = read_table(output_of(alone, "outputs/runs/*/forecasts.json"))
    assert set(table["outcome"]) == {*EVENTS, "terminated", "return"}
    assert {"all", "by 5", "by 15", "by 29"} < set(table["range"])
    assert set(table["actions"]) == {"policy", "foil"}
    assert (
        output_of(alone, "outputs/runs/*/result.txt")
        .read_text()
        .startswith("mean return in this environment: ")
    )
    (run,) = runs(alone, role=None)
    verified = {name for name in run.data.metrics if name.endswith("/skill")}
    assert {"move/skill", "pickup/skill"} <= verified
    client = MlflowClient(f"sqlite:///{alone}/mlflow.db")
    assert "forecasts.json" in {file.path for file in client.list_artifacts(run.info.run_id)}


def test_one_run_is_tracked_without_a_parent(alone: Path) -> None:
    (run,) = runs(alone, role=None)
    assert run.info.status == "FINISHED"
    assert "mlflow.parentRunId" not in run.data.tags
    assert run.data.params["seed"] == "1"
    assert run.data.params["explainer.step_size.rate"] == "0.1"
    assert run.data.tags["version.numpy"] == np.__version__
    assert {f"{event}/{metric}" for event in EVENTS for metric in METRICS} <= set(run.data.metrics)


def test_metrics_are_logged_over_the_course_of_learning(alone: Path) -> None:
    (run,) = runs(alone, role=None)
    history = MlflowClient(f"sqlite:///{alone}/mlflow.db").get_metric_history(run.info.run_id, "move/pi_mse")
    steps = [metric.step for metric in history]
    assert len(steps) == len(set(steps)) >= 3
    assert max(steps) == 60_000


def test_the_commit_is_kept_where_there_is_one(alone: Path) -> None:
    commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True)
    (run,) = runs(alone, role=None)
    if commit.returncode == 0:
        assert run.data.tags["mlflow.source.git.commit"] == commit.stdout.strip()
    else:
        assert "mlflow.source.git.commit" not in run.data.tags


def test_a_run_names_its_program_and_the_transitions_that_it_learned_from(alone: Path) -> None:
    (run,) = runs(alone, role=None)
    assert run.data.tags["mlflow.source.name"] == "tpd-run"
    assert run.inputs is not None
    (used,) = run.inputs.dataset_inputs
    assert used.dataset.name == "FuelTaxi-v0 transitions"
    assert json.loads(str(used.dataset.profile)) == {"num_rows": 60_000}
    assert json.loads(used.dataset.source)["tags"]["mlflow.source.name"] == "tpd-run"
    assert {tag.key: tag.value for tag in used.tags} == {"mlflow.data.context": "training"}


def test_a_sweep_is_one_parent_with_its_jobs(sweep: tuple[Path, str]) -> None:
    folder, _ = sweep
    (parent,) = runs(folder, "sweep")
    jobs = runs(folder, "job")
    assert parent.info.status == "FINISHED"
    assert sorted(job.data.params["seed"] for job in jobs) == ["0", "1"]
    assert {job.data.tags["mlflow.parentRunId"] for job in jobs} == {parent.info.run_id}
    for metric in METRICS:
        values = [job.data.metrics[f"move/{metric}"] for job in jobs]
        assert parent.data.metrics[f"move/{metric}"] == pytest.approx(np.mean(values))
        assert parent.data.metrics[f"move/{metric}_std"] == pytest.approx(np.std(values, ddof=1))


def test_the_parent_holds_table_and_plots(sweep: tuple[Path, str]) -> None:
    folder, _ = sweep
    (parent,) = runs(folder, "sweep")
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    assert {file.path for file in client.list_artifacts(parent.info.run_id)} >= {
        "errors.json",
        "forecasts.json",
        "plots",
    }
    plots = {file.path for file in client.list_artifacts(parent.info.run_id, "plots")}
    assert {"plots/figure_2_seed_0.png", "plots/figure_2_pair_1_over_seeds.png"} <= plots
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    table = client.load_table(parent.info.experiment_id, "errors.json", run_ids=[parent.info.run_id])
    assert list(table["outcome"]) == list(EVENTS)
    assert isinstance(table, pd.DataFrame)


def note_of(run: MlflowRun) -> str:
    return str(run.data.tags["mlflow.note.content"])


def test_a_run_says_what_it_is_and_how_to_go_on(alone: Path) -> None:
    (run,) = runs(alone, role=None)
    tags = {"env": "FuelTaxi-v0", "policy": "q_learning", "explainer": "paper", "seed": "1"}
    assert tags.items() <= run.data.tags.items()
    note = note_of(run)
    assert "What **q\\_learning** expects to happen in **FuelTaxi\\-v0**, by the explainer **paper**" in note
    assert f"{run.data.metrics['move/pi_mse']:.2e}" in note
    assert f"tpd-explain run={run.info.run_id}" in note
    assert f"--model-uri runs:/{run.info.run_id}/explainer" in re.sub(r"[\\\s]+", " ", note)
    _, _, told = note.partition("To repeat it:")
    repeated, _, _ = told.partition("To ask about it:")
    assert shlex.split(repeated.replace("\\\n", "")) == ["tpd-run", *SMALL, "seed=1"]
    client = MlflowClient(f"sqlite:///{alone}/mlflow.db")
    shown = set(re.findall(r"get-artifact\?path=note%2F([^&]+)&run_uuid=" + run.info.run_id, note))
    kept = {Path(file.path).name for file in client.list_artifacts(run.info.run_id, "note")}
    assert shown == kept
    assert {name.partition("_")[2] for name in shown} == {"figure_1.png", "figure_2.png", "reliability.png"}


def test_the_parent_has_the_summary(sweep: tuple[Path, str]) -> None:
    folder, _ = sweep
    (parent,) = runs(folder, "sweep")
    note = note_of(parent)
    assert note.startswith("A sweep of 2 runs, of which 2 finished.")
    assert "tpd-run -m experiment=paper" in note
    assert "'seed=range(2)'" in note
    mean, std = (parent.data.metrics[f"move/pi_mse{end}"] for end in ("", "_std"))
    assert f"{mean:.2e} ± {std:.1e}" in note
    for job in runs(folder, "job"):
        assert job.info.run_name == f"seed {job.data.params['seed']}"
        page = f"#/experiments/{job.info.experiment_id}/runs/{job.info.run_id}"
        own = np.mean([job.data.metrics[f"{event}/pi_mse"] for event in EVENTS])
        assert re.search(rf"\[seed {job.data.params['seed']}\]\({page}\S*\) \| &emsp;{own:.3g} ", note)
    assert "error\\_against\\_steps" in note
    assert "figure\\_2\\_pair\\_1\\_over\\_seeds" in note


def test_the_terminal_shows_the_table_beside_the_papers_and_how_to_look(sweep: tuple[Path, str]) -> None:
    _, shown = sweep
    assert "1.86e-04 ± 1.9e-05" in shown
    assert "7.77e-01 ± 6.6e-02" in shown
    assert "of the visits another action has a higher" in shown
    assert "to view the run: " in shown
    assert "tpd-ui\n" in shown


def test_the_same_seed_gives_the_same_bits_alone_and_in_parallel(
    alone: Path, sweep: tuple[Path, str]
) -> None:
    folder, _ = sweep
    one = read_errors(output_of(alone, "outputs/runs/*/errors.json"))
    same = read_errors(output_of(folder, "outputs/sweeps/*/1/errors.json"))
    other = read_errors(output_of(folder, "outputs/sweeps/*/0/errors.json"))
    assert one.equals(same)
    assert not one.equals(other)
    tables = [
        explainers.load(output_of(f, pattern)).predictor.expected  # type: ignore[attr-defined]
        for f, pattern in ((alone, "outputs/runs/*/explainer"), (folder, "outputs/sweeps/*/1/explainer"))
    ]
    assert np.array_equal(*tables)


def test_the_saved_explainer_answers_like_the_one_that_was_saved(alone: Path) -> None:
    explainer = explainers.load(output_of(alone, "outputs/runs/*/explainer"))
    explanation = explainer.explain(np.array([100, 200]))
    assert explanation.legend.names == EVENTS
    assert explanation.expected.shape == (2, 30, 7)
    assert explanation.agent_value is not None


def test_the_tracked_explainer_is_a_model_without_pickle(alone: Path) -> None:
    mlflow.set_tracking_uri(f"sqlite:///{alone}/mlflow.db")
    (run,) = runs(alone, role=None)
    (logged,) = mlflow.search_logged_models([run.info.experiment_id], output_format="list")
    assert logged.name == "explainer"
    model = mlflow.pyfunc.load_model(logged.model_uri)
    answer = model.predict(pd.DataFrame({"state": [100], "action": [0]}))
    stored = explainers.load(output_of(alone, "outputs/runs/*/explainer"))
    expected = stored.explain(np.array([100]), np.array([0])).expected[0]
    np.testing.assert_array_equal(answer[list(EVENTS)].to_numpy(), expected)
    files = [path.name for path in Path(logged.artifact_location.removeprefix("file://")).rglob("*")]
    assert not [name for name in files if name.endswith((".pkl", ".pickle"))]


@pytest.mark.parametrize(("env", "policy"), [("cart_pole", "left"), ("pendulum", "swing")])
def test_a_network_is_a_model_that_is_asked_with_vectors(
    env: str, policy: str, tmp_path: Path, compose_config: Compose
) -> None:
    function = f"policy.function={{_target_: policies_of_a_user.{policy}, _partial_: true}}"
    chosen = ["policy=function", function, "explainer=network", "training=agent", "evaluation=none"]
    parts = build(compose_config(f"env={env}", *chosen, "explainer.hidden=[8]", "explainer.horizon=5"))
    rng, exploration = np.random.default_rng(0), Exploration(0.5)
    (seen,) = collect(parts.env, parts.trainer.policy, rng, steps=100, exploration=exploration, num_envs=5)
    parts.explainer.predictor.update(seen)  # type: ignore[attr-defined]
    explainers.save(parts.explainer, parts.env, tmp_path / "explainer")
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    with MlflowTracking(uri=uri, experiment="network").open("run", {}, {}) as run:
        run.model(tmp_path / "explainer", "explainer")
    mlflow.set_tracking_uri(uri)
    (logged,) = mlflow.search_logged_models(filter_string="name = 'explainer'", output_format="list")
    model = mlflow.pyfunc.load_model(logged.model_uri)
    pairs = seen.observation[:2], seen.action[:2]
    answer = model.predict(
        pd.DataFrame({"state": pairs[0].astype(float).tolist(), "action": pairs[1].tolist()})
    )
    expected = parts.explainer.explain(*pairs).expected
    assert list(answer["row"]) == [0] * 5 + [1] * 5
    found = answer[list(parts.outcomes.legend.names)].to_numpy().reshape(expected.shape)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_wrong_value_stops_a_run_with_one_line(tmp_path: Path) -> None:
    done = tpd_run(tmp_path, "training.epsilon=2", check=False)
    assert done.returncode != 0
    assert "training: epsilon must lie in [0, 1], got 2" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["seed=0,1", "explainer.horizon=5,0"], "explainer: horizon must be 1 or more, got 0"),
        (["policy.bogus=1,2"], "bogus"),
        (["seed=0,1", "tracking.uri=http://127.0.0.1:9"], "tracking: http://127.0.0.1:9 does not answer"),
        (["seed=0,0"], "two jobs of the sweep are the same, seed=0: remove the duplicate value"),
    ],
)
def test_a_sweep_with_one_wrong_job_does_not_begin(
    tmp_path: Path, overrides: list[str], message: str
) -> None:
    done = tpd_run(tmp_path, "-m", *overrides, check=False)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(tmp_path.glob("outputs/sweeps/*/*/config.yaml"))
    assert not (tmp_path / "mlflow.db").exists()


def test_groups_of_a_sweep_are_kept_apart(tmp_path: Path) -> None:
    words = [*SMALL, *ONE_FIGURE, "explainer=paper,replayed", IN_TURN]
    done = tpd_run(tmp_path, "-m", *words, store=True)
    assert "Errors of paper, explainer=paper, 1 seed" in done.stdout
    assert "Errors of paper, explainer=replayed, 1 seed" in done.stdout
    (plots,) = tmp_path.glob("outputs/sweeps/*/plots")
    left = {str(path.relative_to(plots)) for path in plots.rglob("*.png")}
    assert {f"explainer={name}/figure_2_seed_0.png" for name in ("paper", "replayed")} <= left
    assert "error_against_steps.png" in left
    (parent,) = runs(tmp_path, "sweep")
    metrics = parent.data.metrics
    names = {job.info.run_name for job in runs(tmp_path, "job")}
    assert names == {f"explainer={name}, seed 0" for name in ("paper", "replayed")}
    assert "explainer" not in parent.data.tags
    assert metrics["explainer_replayed/move/pi_mse"] < metrics["explainer_paper/move/pi_mse"]


def test_a_sweep_in_which_nothing_is_known_is_told_all_the_same(tmp_path: Path) -> None:
    untried = "+figures.rare={pairs: [{state: {row: 0, col: 0, fuel: 20, passenger: true}, action: east}]}"
    few = ["policy.steps=500", "training.steps=500", "evaluation.episodes=20", "evaluation.curve_points=2"]
    few += ["recording.episodes=0", "overview=false", IN_TURN]
    few += ["evaluation.forecast_episodes=20", "name=paper", "hydra.sweep.subdir=s${seed}"]
    done = tpd_run(tmp_path, "-m", *few, untried, "seed=0,1", store=True)
    assert "Errors of paper" in done.stdout
    assert list(tmp_path.glob("outputs/sweeps/*/plots/rare_pair_1_over_seeds.png"))
    (parent,) = runs(tmp_path, "sweep")
    assert parent.info.status == "FINISHED"
    client = MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
    for job in runs(tmp_path, "job"):
        steps = [m.step for m in client.get_metric_history(job.info.run_id, "move/pi_mse")]
        assert len(steps) == len(set(steps))


def test_the_exact_solution_is_an_explainer_and_nothing_is_tracked_if_not_wanted(tmp_path: Path) -> None:
    tpd_run(tmp_path, *SMALL, *ONE_FIGURE, "explainer=exact", "tracking=none")
    (errors,) = tmp_path.glob("outputs/runs/*/errors.json")
    table = read_errors(errors)
    assert not (tmp_path / "mlflow.db").exists()
    assert list(tmp_path.glob("outputs/runs/*/plots/figure_2.png"))
    assert not table[list(METRICS)].to_numpy().any()
    assert (table[["pi_known", "foil_known"]] == 1).all(axis=None)


def test_seeds_that_are_handed_on_do_not_set_jobs_apart(tmp_path: Path, compose_config: Compose) -> None:
    jobs = []
    for number, (seed, steps) in enumerate([(0, 10), (1, 10), (0, 20), (1, 20)]):
        overrides = ["explainer=network", f"training.steps={steps}"]
        about = build(compose_config(*overrides, f"seed={seed}")).about
        jobs.append(Job(tmp_path / str(number), about, overrides))
    groups = {label: [job.seed for job in group] for label, group in alike(jobs).items()}
    assert groups == {"training.steps=10": ["0", "1"], "training.steps=20": ["0", "1"]}
