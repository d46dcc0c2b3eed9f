"""Turning points: forecasts of the same stretch of time agree until something unexpected happens."""

import numpy as np
import pytest

from tests.support import small_mdp
from tpd.answers.resolve import resolve
from tpd.answers.turning_points import LEAST, forecast_names, turning_points
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, DiscretePolicy, FloatArray, Policy
from tpd.envs import Environment
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.known_errors import EDGES, RANKS, KnownErrors
from tpd.run.parts import Parts
from tpd.show import timeline
from tpd.sources.episodes import Recorder, Recording

HORIZON = 6


def explainer_of(policy: DiscretePolicy, horizon: int = HORIZON) -> Explainer:
    outcomes = small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=horizon)
    return Explainer(solution, policy, outcomes.legend)


def recorded(policy: Policy, episodes: int, steps: int = 50) -> Recording:
    recorder = Recorder(episodes=episodes, steps=steps)
    recording = recorder.record(small_mdp.environment(), policy, small_mdp.outcomes())
    assert recording is not None
    return recording


def test_on_average_nothing_turns() -> None:
    policy = small_mdp.policy()
    explainer, recording = explainer_of(policy), recorded(policy, 400)
    points = turning_points(explainer, recording)
    ends = recording.episodes.transitions[recording.episodes.transitions.terminated]
    last = ends.reward - explainer.explain(ends.observation, ends.action).expected_return[:, -1]
    surprise = np.concatenate([points["return_after"] - points["return_before"], last])
    assert surprise.std() > 0.1
    assert abs(surprise.mean()) < 4 * surprise.std() / np.sqrt(len(surprise))
    np.testing.assert_allclose(points["chance"] + points["choice"], points["after"] - points["before"])


def test_the_largest_changes_come_first_and_are_between_0_and_1() -> None:
    policy = small_mdp.policy()
    points = turning_points(explainer_of(policy), recorded(policy, 20))
    assert points["change"].is_monotonic_decreasing
    assert points["change"].between(0, 1).all()
    np.testing.assert_allclose(points["change"], (points["after"] - points["before"]).abs())


@pytest.mark.parametrize("error", [0.0, 1.0])
def test_changes_of_uncertain_forecasts_are_left_out(error: float) -> None:
    policy = small_mdp.policy()
    explainer, recording = explainer_of(policy), recorded(policy, 20)
    names = explainer.legend.names
    width, moments = len(names) + 1, 20
    events = np.append(explainer.legend.is_event, True)
    plain = turning_points(explainer, recording)
    explainer.errors = KnownErrors(
        quantiles=error * np.linspace(-1, 1, RANKS) * np.ones((width, 1, len(EDGES) + 1, 1)),
        span=np.zeros(HORIZON, dtype=np.int64),
        ranks=np.random.default_rng(0).random((moments, 2, width)),
        steps=np.zeros((moments, 2, HORIZON, int((~events).sum()))),
        once=np.array([names.index(f"first {n}") if f"first {n}" in names else -1 for n in [*names, ""]]),
        ends=np.zeros(width, dtype=np.bool_),
        events=events,
    )
    points = turning_points(explainer, recording)
    assert plain["change"].max() > 0.1
    if error:
        assert points["change"].max() < LEAST
    else:
        np.testing.assert_allclose(points["change"], plain["change"])


def test_without_a_choice_everything_is_chance() -> None:
    policy = small_mdp.policy(stochastic=False)
    points = turning_points(explainer_of(policy), recorded(policy, 20))
    np.testing.assert_allclose(points["choice"], 0, atol=1e-12)
    assert points["chance"].abs().max() > 0.01


def test_every_step_with_a_future_is_there_once_and_no_end() -> None:
    policy = small_mdp.policy()
    recording = recorded(policy, 30, steps=5)
    points = turning_points(explainer_of(policy), recording)
    for number in range(30):
        episode = recording.episodes[number]
        assert sorted(points["step"][points["episode"] == number]) == list(range(len(episode) - 1))
    ended = recording.episodes.transitions.terminated.any()
    assert ended
    assert not recording.episodes.transitions.terminated[recording.episodes.begins[1:] - 1].all()


def test_a_step_is_compared_with_the_next_one() -> None:
    policy = small_mdp.policy()
    explainer, recording = explainer_of(policy), recorded(policy, 20)
    points = turning_points(explainer, recording)
    firsts = points[(points["step"] == 0) & (points["outcome"] == "first odd")]
    checked = 0
    for point in firsts.itertuples():
        steps = recording.episodes[int(point.episode)]  # type: ignore[arg-type]
        if len(steps) == 1:
            continue
        now = explainer.explain(steps.observation[:1], steps.action[:1])
        then = explainer.explain(steps.observation[1:2], steps.action[1:2])
        arrived_odd = steps.next_observation[0] % 2 == 1
        assert point.before == pytest.approx(now.expected[0, :, 2].sum())
        assert point.after == pytest.approx(1 if arrived_odd else then.expected[0, :-1, 2].sum())
        assert point.return_before == pytest.approx(now.expected_return[0, -1])
        assert point.return_after == pytest.approx(steps.reward[0] + 0.9 * then.expected_return[0, -2])
        assert point.happened == ("odd" if arrived_odd else "even")
        checked += 1
    assert checked


def test_an_agent_that_is_not_there_leaves_chance_unknown() -> None:
    policy = small_mdp.policy()
    explainer = explainer_of(policy)
    absent = Explainer(explainer.predictor, AbsentPolicy(0.9, "not stored"), explainer.legend)
    points = turning_points(absent, recorded(policy, 20))
    decided = points["after"].isin([0, 1])  # by the step itself: there was nothing left to choose
    assert points["chance"][~decided].isna().all()
    assert (~decided).any()
    assert points["change"].notna().all()


class Forgetful(ExactSolution):
    """Never tried anything in state 3."""

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.where(observations == 3, 0, super().support(observations, actions))


def test_what_is_unknown_comes_last_and_has_no_outcome() -> None:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    solution = Forgetful(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    recording = recorded(policy, 20)
    points = turning_points(Explainer(solution, policy, outcomes.legend), recording)
    unknown = points["change"].isna()
    assert unknown.any()
    assert unknown.is_monotonic_increasing
    assert points["outcome"][unknown].isna().all()
    assert not points["outcome"][~unknown].isna().any()


def test_decisive_events_are_forecast_or_else_all() -> None:
    legend = small_mdp.outcomes().legend
    assert forecast_names(legend, ["odd"]) == ["first odd"]
    assert forecast_names(legend, []) == ["first odd", "even"]
    policy = small_mdp.policy()
    points = turning_points(explainer_of(policy), recorded(policy, 20))
    assert set(points["outcome"].dropna()) == {"first odd"}  # only odd is rewarded


def test_a_horizon_of_one_step_is_refused() -> None:
    policy = small_mdp.policy()
    with pytest.raises(ValueError, match="horizon"):
        turning_points(explainer_of(policy, horizon=1), recorded(policy, 2))


@pytest.mark.no_cover
def test_in_the_taxi_it_is_traffic_that_turns_a_ride_towards_failure(
    paper: Parts, fuel_taxi: Environment
) -> None:
    assert fuel_taxi.model is not None
    outcomes = OutcomeSet(paper.outcomes.outcomes, True, True, first=["failure", "dropoff"])
    policy = resolve(fuel_taxi.model, outcomes, {}, 0.99)
    explainer = Explainer(ExactSolution(fuel_taxi, policy, outcomes, horizon=30), policy, outcomes.legend)
    recording = Recorder(episodes=60, steps=100).record(fuel_taxi, policy, outcomes)
    assert recording is not None
    points = turning_points(explainer, recording)
    towards = points[(points["outcome"] == "first failure") & (points["after"] > points["before"])]
    assert set(towards["happened"][towards["change"] > 0.05]) == {"traffic"}
    assert set(points["outcome"]) == {"first failure", "first dropoff", "pickup"}
    assert points["change"][0] > 0.3
    figure = timeline.draw(points, outcomes.legend, "taxi")
    assert len(figure.axes) == points["episode"].nunique()
    bars = [bar for axes in figure.axes for bar in axes.collections[0].get_paths()]
    heights = [bar.get_extents().height for bar in bars]
    np.testing.assert_allclose(sorted(heights), sorted(points["change"]))
    (said,) = figure.axes[sorted(points["episode"].unique()).index(points["episode"][0])].texts
    outcome = str(points["outcome"][0]).removeprefix("first ")
    assert said.get_text().startswith(f"{points['happened'][0]}: {outcome} ")
