"""What replayed FHTD is claimed to bring: defaults, one seed, and with `make test-slow` ten of them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import Compose, small_mdp
from tests.support.commands import tpd_run
from tests.support.learning import batches, train
from tests.support.q_learning import q_learning
from tpd.core.seeding import generator
from tpd.core.types import Array, DiscretePolicy, FloatArray, concatenate
from tpd.evaluation.errors import METRICS
from tpd.policies.tabular import GreedyPolicy, TabularPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.tabular import TabularFHTD
from tpd.run.parts import Parts, build
from tpd.show import learning_curves
from tpd.store.tables import read_errors

STEPS = np.geomspace(5e3, 5e6, 13)


def learned(parts: Parts) -> Parts:
    """The parts, trained as the command line would."""
    update = parts.explainer.predictor.update  # type: ignore[attr-defined]
    train(parts.training, parts.env, parts.trainer, generator(parts.seed, "collection"), learning=[update])
    return parts


# The defaults


@pytest.mark.parametrize(
    "overrides", [[], ["experiment=fuel_taxi"], ["experiment=fuel_taxi_spread"], ["training=alongside"]]
)
def test_replayed_is_the_default(overrides: list[str], compose_config: Compose) -> None:
    parts = build(compose_config(*overrides))
    assert isinstance(parts.explainer.predictor, ReplayedFHTD)
    assert parts.explainer.predictor.horizon == 30


def test_the_papers_explainer_is_one_override_away(compose_config: Compose) -> None:
    for overrides in (["explainer=paper"], ["experiment=paper"], ["experiment=fuel_taxi", "explainer=paper"]):
        predictor = build(compose_config(*overrides)).explainer.predictor
        assert isinstance(predictor, TabularFHTD)
        assert (predictor.step_size.scale, predictor.step_size.exponent) == (0.1, 0)


def test_fuel_taxi_learns_from_as_much_as_the_paper_does(compose_config: Compose) -> None:
    paper, ours = (compose_config(f"experiment={name}") for name in ("paper", "fuel_taxi"))
    for group in ("env", "policy", "outcomes", "training", "evaluation"):
        assert ours[group] == paper[group] or group == "outcomes"
    assert ours.outcomes.outcomes == paper.outcomes.outcomes
    assert ours.training.steps == 5_000_000


def test_spread_spreads(compose_config: Compose) -> None:
    for overrides in (["training=spread"], ["experiment=fuel_taxi_spread"]):
        training = build(compose_config(*overrides)).training
        assert training.steps == 5_000_000
        assert training.exploration.least_tried
        assert (training.exploration.restarts, training.exploration.epsilon) == (0.5, 0.3)
    plain = build(compose_config("experiment=fuel_taxi")).training.exploration
    assert (plain.least_tried, plain.restarts) == (False, 0)


@pytest.mark.parametrize("env", ["fuel_taxi", "frozen_lake", "cliff_walking", "taxi"])
def test_every_env_with_a_table_has_a_time_limit(env: str, compose_config: Compose) -> None:
    """CliffWalking has none of its own, and its policy may walk for ever."""
    spec = build(compose_config(f"env={env}")).env.make().spec
    assert spec is not None
    assert spec.max_episode_steps == 200


def test_the_envs_that_nobody_here_designed_are_slippery(compose_config: Compose) -> None:
    assert build(compose_config("env=frozen_lake")).env.kwargs == {"map_name": "8x8", "is_slippery": True}
    assert build(compose_config("env=cliff_walking")).env.kwargs == {"is_slippery": True}


# One seed


def test_a_fiftieth_of_the_data_is_enough(compose_config: Compose) -> None:
    parts = learned(build(compose_config("experiment=fuel_taxi", "training.steps=1e5")))
    assert parts.examiner is not None
    errors = parts.examiner.errors(1000)
    pi_mse = dict(zip(errors.names, errors.pi_mse, strict=True))
    for event, figures in parts.evaluation.reference.items():
        assert pi_mse[event] <= figures["pi_mse"][0], event


def test_replayed_serves_alongside_training(compose_config: Compose) -> None:
    """It explains the policy as it is in the end, though the data is from policies before it."""
    overrides = ["policy.explained_epsilon=0.1", "policy.steps=300000", "explainer.horizon=10"]
    parts = learned(build(compose_config("env=frozen_lake", "training=alongside", *overrides)))
    policy = parts.trainer.policy
    assert isinstance(policy, DiscretePolicy)
    truth = Explainer(
        ExactSolution(parts.env, policy, parts.outcomes, horizon=10), policy, parts.outcomes.legend
    )
    start = np.array([0])
    error = (parts.explainer.explain(start) - truth.explain(start)).expected
    assert np.abs(error).max() < 0.02
    assert truth.explain(start).expected[0, 5:].max() > 0.5


# What an explanation costs


class Asked(TabularPolicy):
    """Counts the states that it is asked about."""

    count = 0

    def probabilities(self, observations: Array) -> FloatArray:
        self.count += len(observations)
        return super().probabilities(observations)


class AskedGreedy(GreedyPolicy):
    """The same for a policy that counts its changes."""

    count = 0

    def probabilities(self, observations: Array) -> FloatArray:
        self.count += len(observations)
        return super().probabilities(observations)


def test_an_explanation_asks_a_policy_about_every_state_at_most_once() -> None:
    """And one that counts its changes only about the states explained."""
    values = small_mdp.policy().probabilities(np.arange(small_mdp.NUM_STATES))
    black_box, versioned = Asked(values, 0.9), AskedGreedy(values, np.ones_like(values, dtype=bool), 0.9)
    outcomes = small_mdp.outcomes()
    for policy, asked in ((black_box, small_mdp.NUM_STATES + 1), (versioned, 1)):
        predictor = ReplayedFHTD(small_mdp.environment(), policy, outcomes, horizon=3)
        predictor.update(concatenate(list(batches(policy, 2_000))))
        explainer = Explainer(predictor, policy, outcomes.legend)
        explainer.explain(np.array([2]), np.array([1]))
        policy.count = 0
        explainer.explain(np.array([2]), np.array([1]))
        assert policy.count == asked


def test_explanations_follow_a_policy_that_goes_on_training() -> None:
    """Without new data, what is explained is the policy as it is now."""
    env, outcomes = small_mdp.environment(), small_mdp.outcomes()
    trainer = q_learning(env)
    predictor = ReplayedFHTD(env, trainer.policy, outcomes, horizon=5)
    seen = concatenate(list(batches(small_mdp.policy(), 20_000)))
    predictor.update(seen)
    before = predictor.table().expected
    trainer.train()
    fresh = ReplayedFHTD(env, trainer.policy, outcomes, horizon=5)
    fresh.update(seen)
    np.testing.assert_array_equal(predictor.table().expected, fresh.table().expected)
    assert np.abs(predictor.table().expected - before).max() > 0.05


# The error against the number of steps


def curve(errors: FloatArray) -> pd.DataFrame:
    return pd.DataFrame({"step": STEPS, "pi_mse": errors, "foil_mse": 2 * errors})


def test_the_guide_falls_in_proportion_to_the_steps_below_the_best_curve() -> None:
    for axes in learning_curves.draw({"slow": curve(STEPS**-0.5), "fast": curve(3 / STEPS)}).axes:
        _, fast, guide = axes.lines
        assert "1/n" in [text.get_text() for text in axes.texts]
        best, limit = (np.asarray(line.get_ydata(), dtype=float) for line in (fast, guide))
        np.testing.assert_allclose(limit, best[[0, -1]] / 2)


def test_an_error_of_zero_is_said_to_be_exact() -> None:
    vanishing = np.where(STEPS < 1e5, 1 / STEPS, 0.0)
    figure = learning_curves.draw({"soon": curve(vanishing), "always": curve(0 * STEPS)})
    for axes in figure.axes:
        assert axes.get_legend_handles_labels()[1] == ["soon (exact)", "always (exact)"]
        drawn = np.asarray(axes.lines[0].get_ydata(), dtype=float)
        np.testing.assert_array_equal(np.isfinite(drawn), STEPS < 1e5)


def test_without_steps_there_is_nothing_to_draw() -> None:
    assert not learning_curves.draw({"none": curve(1 / STEPS).assign(step=0)}).axes


def test_a_sweep_says_at_once_that_it_has_begun(tmp_path: Path) -> None:
    done = tpd_run(tmp_path, "-m", "explainer.horizon=0", "seed=0,1", check=False)
    assert "tpd sweep: loading libraries" in done.stdout.splitlines()[0]


# Ten seeds


def sweep(folder: Path, *overrides: str) -> list[Path]:
    """The folders of the jobs of a sweep."""
    folder.mkdir(exist_ok=True)
    tpd_run(folder, "-m", *overrides, "tracking=none", "evaluation.forecast_episodes=0")
    return sorted(folder.glob("outputs/sweeps/*/*/errors.json"))


def mean_errors(files: list[Path]) -> pd.DataFrame:
    return pd.concat([read_errors(file) for file in files]).groupby(level=0).mean()


@pytest.fixture
def papers(compose_config: Compose) -> pd.DataFrame:
    """The means of the paper's table, a row for each of its six events."""
    reference = compose_config("experiment=paper").evaluation.reference
    rows = {event: {metric: figures[metric][0] for metric in METRICS} for event, figures in reference.items()}
    assert len(rows) == 6
    return pd.DataFrame.from_dict(rows, orient="index")


@pytest.mark.slow
def test_a_hundred_times_more_accurate_than_the_paper(tmp_path: Path, papers: pd.DataFrame) -> None:
    files = sweep(tmp_path, "experiment=fuel_taxi", "seed=range(10)")
    assert len(files) == 10
    mean = mean_errors(files).loc[papers.index]
    assert (100 * mean["pi_mse"] <= papers["pi_mse"]).all(), papers["pi_mse"] / mean["pi_mse"]
    assert (25 * mean["foil_mse"] <= papers["foil_mse"]).all(), papers["foil_mse"] / mean["foil_mse"]
    curves = pd.concat([read_errors(file.with_name("curve.json"), by=["step"]) for file in files])
    error = curves.groupby("step")["pi_mse"].mean().loc[1e5:]
    assert error.index.max() == 5_000_000
    assert len(error) > 8
    slope = np.polyfit(np.log(error.index.to_numpy(float)), np.log(error.to_numpy(float)), 1)[0]
    assert slope == pytest.approx(-1, abs=0.05)


@pytest.mark.slow
def test_spread_visits_leave_no_foil_far_off(tmp_path: Path, papers: pd.DataFrame) -> None:
    files = sweep(tmp_path, "experiment=fuel_taxi_spread", "seed=range(10)", "evaluation.curve_points=0")
    assert len(files) == 10
    mean = mean_errors(files).loc[papers.index]
    assert (mean["foil_max"] <= 0.1).all(), mean["foil_max"]


@pytest.mark.slow
def test_fifty_times_less_data(tmp_path: Path, papers: pd.DataFrame) -> None:
    files = sweep(tmp_path, "experiment=fuel_taxi", "training.steps=1e5", "seed=range(10)")
    assert len(files) == 10
    mean = mean_errors(files).loc[papers.index]
    assert (mean["pi_mse"] <= papers["pi_mse"]).all(), papers["pi_mse"] / mean["pi_mse"]


@pytest.mark.slow
@pytest.mark.parametrize("env", ["frozen_lake", "cliff_walking", "taxi"])
def test_the_same_in_kind_where_nobody_here_designed_the_world(tmp_path: Path, env: str) -> None:
    """As much more accurate than the paper's step size as on FuelTaxi, for every event."""
    settings = [f"env={env}", "training.steps=5e6", "evaluation.curve_points=0", "seed=range(10)"]
    paper = mean_errors(sweep(tmp_path / "paper", *settings, "explainer=paper"))
    ours = mean_errors(sweep(tmp_path / "ours", *settings))
    for metric, times in {"pi_mse": 100, "foil_mse": 25}.items():
        assert (times * ours[metric] <= paper[metric]).all(), (metric, paper[metric] / ours[metric])
    assert (paper["foil_mse"] > 0).any()
