"""Window targets: what is observed while the policy itself acts, and laws of what happens but once."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium import spaces

from tests.support.networks import HORIZON, network
from tpd.core.first_occurrences import before_the_end, reconciled
from tpd.core.outcomes import FIRST, OutcomeSet, event, reward
from tpd.core.types import BoolArray, FloatArray, IntArray, Transitions
from tpd.envs import Environment
from tpd.kernels.windows import accumulate_windows, continue_windows, read_windows
from tpd.policies.function import DiscreteFunctionPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.network.columns import Columns, EndingEvents
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.targets import Targets, losses
from tpd.predictors.network.window_targets import censoring_weights

STEPS = 5


def read(own: list[bool], ends: list[bool], longest: int = STEPS) -> tuple[Any, ...]:
    """Windows of one stream of transitions; the first outcome counts them, the second happens once."""
    count = len(own)
    outcome = np.stack([np.arange(count), np.ones(count), ends], axis=1).astype(np.float32)
    continuation = np.stack([~np.array(ends), np.zeros(count), ~np.array(ends)], axis=1).astype(np.float32)
    following = np.where(np.array(ends), -1, np.append(np.arange(1, count), -1))
    rows, order = np.arange(count), np.arange(3)
    return read_windows(rows, following, np.array(own), outcome, continuation, order, STEPS, longest)


def test_a_window_lasts_as_long_as_the_policy_itself_acts() -> None:
    own = [True, True, False, True, True, True, True, True, True]
    seen, going_on, known, last = read(own, [False] * 9)
    assert known.tolist() == [2, 1, STEPS, STEPS, STEPS, 4, 3, 2, 1]  # the data end with the last
    assert last.tolist() == [1, 1, 6, 7, 8, 8, 8, 8, 8]
    np.testing.assert_array_equal(seen[0, :, 0], [0, 1, 0, 0, 0])
    np.testing.assert_array_equal(seen[2, :, 0], [2, 3, 4, 5, 6])
    np.testing.assert_array_equal(seen[:, :, 1].sum(axis=1), 1)  # it goes on no further than the first time
    np.testing.assert_array_equal(going_on[:, 1], 0)
    _, _, one_step, _ = read(own, [False] * 9, longest=1)
    assert one_step.tolist() == [1] * 9


def test_after_a_termination_all_is_known() -> None:
    seen, going_on, known, _ = read([True] * 4, [False, False, True, False])
    assert known.tolist() == [STEPS, STEPS, STEPS, 1]
    np.testing.assert_array_equal(seen[0, :, 0], [0, 1, 2, 0, 0])
    np.testing.assert_array_equal(seen[0, :, 2], [0, 0, 1, 0, 0])
    np.testing.assert_array_equal(going_on[:3, 0], 0)


def test_beyond_a_window_comes_what_is_expected_from_then_on() -> None:
    own = [True, True, False, True]
    seen, going_on, known, _ = read(own, [False] * 4)
    after = np.random.default_rng(0).random((1, STEPS, 3)).astype(np.float32)
    values = seen.copy()
    continue_windows(seen, going_on, known, np.array([0]), after)
    np.testing.assert_allclose(seen[0, :, 0], [0, 1, *after[0, :3, 0]])
    np.testing.assert_array_equal(seen[0, :, 1], [1, 0, 0, 0, 0])
    value_after = np.cumsum(after * 0.5 ** np.arange(STEPS)[:, None], axis=1).astype(np.float32)
    accumulate_windows(values, going_on, known, np.array([0]), value_after, 0.5)
    np.testing.assert_allclose(
        values[0], np.cumsum(seen[0] * 0.5 ** np.arange(STEPS)[:, None], axis=0), rtol=1e-5
    )


class Fall:
    """Events of a made-up batch, by the sign of what is observed next."""

    @staticmethod
    def left(t: Transitions) -> BoolArray:
        return np.asarray(t.terminated & (t.next_observation[:, 0] < 0))

    @staticmethod
    def right(t: Transitions) -> BoolArray:
        return np.asarray(t.terminated & (t.next_observation[:, 0] > 0))

    @staticmethod
    def leaning(t: Transitions) -> BoolArray:
        return np.asarray(t.next_observation[:, 0] < 0)

    @staticmethod
    def any_end(t: Transitions) -> BoolArray:
        return t.terminated


def fall_outcomes() -> OutcomeSet:
    events = [
        event("leaning", Fall.leaning),
        event("left", Fall.left),
        event("right", Fall.right),
        event("any end", Fall.any_end),
        event("never", lambda t: np.zeros(len(t))),
    ]
    return OutcomeSet(events, first=["leaning", "left"])


def batch(count: int = 100) -> Transitions:
    rng = np.random.default_rng(0)
    seen = rng.normal(size=(2, count, 1)).astype(np.float32)
    never = np.zeros(count, dtype=np.bool_)
    return Transitions(seen[0], rng.integers(2, size=count), seen[1], np.ones(count), never, never)


def test_events_that_end_the_episode_are_found_before_any_has() -> None:
    outcomes = fall_outcomes()
    endings = EndingEvents(outcomes)
    assert not endings.found
    endings.ask(batch())
    assert list(endings.found) == [1, 2]  # the third that ends it always comes with one of these
    columns = Columns.of(outcomes).ended_by(endings.found)
    assert columns.ending == ((1, 6), (2,))
    assert columns.again == ((0, 5),)
    assert columns.events == (3, 4)
    with pytest.raises(ValueError, match=r"its 8 outcomes \(columns 0 to 7\) once"):
        Columns(8, events=(0, 1))


def random_network(outcomes: OutcomeSet, seed: int) -> OutcomeNetwork:
    """One whose weights are large and mean nothing."""
    columns = Columns.of(outcomes).ended_by((1, 2))
    made = OutcomeNetwork(spaces.Box(-1, 1, (1,)), spaces.Discrete(2), columns, horizon=HORIZON, hidden=[8])
    torch.manual_seed(seed)
    for parameter in made.parameters():
        torch.nn.init.normal_(parameter, std=2)
    return made


def test_events_agree_with_their_first_occurrences_whatever_the_weights_are() -> None:
    outcomes, observations = fall_outcomes(), np.linspace(-1e3, 1e3, 200, dtype=np.float32)[:, None]
    actions = np.arange(200) % 2
    for seed in range(5):
        made = random_network(outcomes, seed)
        with torch.no_grad():
            found = made.expected(made.outputs(made.features(observations), actions)).numpy()
        expected = found[..., np.argsort(made.columns.order)]
        assert np.ptp(expected) > 0.9
        for at, first in ((0, 5), (1, 6)):
            by = np.cumsum(expected[..., first], axis=1)
            assert (expected[..., first] <= expected[..., at] + 1e-6).all()
            assert (expected[..., at] <= by + 1e-5).all()
            assert by.max() <= 1 + 1e-5
        np.testing.assert_allclose(expected[..., 1], expected[..., 6])
        assert (expected[..., 1] + expected[..., 2] <= expected[..., -1] + 1e-5).all()
        assert expected[..., -1].sum(axis=1).max() <= 1 + 1e-5


def test_after_a_certain_end_a_network_expects_nothing() -> None:
    outcomes = OutcomeSet([event("leaning", Fall.leaning), reward(0, 1)])
    columns = Columns.of(outcomes)
    made = OutcomeNetwork(spaces.Box(-1, 1, (1,)), spaces.Discrete(2), columns, horizon=HORIZON, hidden=[8])
    made.times.heads.shared.bias.data[2] = 50  # type: ignore[union-attr]  # the end is at step 2
    observations, actions = np.zeros((1, 1), dtype=np.float32), np.zeros(1, dtype=np.int64)
    made.steps.heads.shared.bias.data[:] = 1  # type: ignore[union-attr]
    with torch.no_grad():
        found = made.expected(made.outputs(made.features(observations), actions)).numpy()[0]
    expected = found[:, np.argsort(columns.order)]
    assert (expected[:3, :2] > 0.1).all()
    np.testing.assert_allclose(expected[3:, :2], 0, atol=1e-6)


def test_reconciling_moves_first_occurrences_only_as_far_as_needed() -> None:
    legend = OutcomeSet([event("a", Fall.left), event("b", Fall.right)], first=["a"]).legend
    assert legend.names[-1] == f"{FIRST}a"
    expected = np.random.default_rng(0).random((500, 12, 3)) ** 3
    fitting = reconciled(expected, legend)
    by = np.cumsum(fitting[..., 2], axis=1)
    assert (fitting[..., 2] <= fitting[..., 0] + 1e-9).all()
    assert (fitting[..., 0] <= by + 1e-9).all()
    assert by.max() <= 1 + 1e-9
    np.testing.assert_array_equal(fitting[..., :2], expected[..., :2])
    assert np.abs(fitting - expected).max() > 0.1
    assert reconciled(fitting, legend) is fitting


def test_nothing_is_expected_after_the_end() -> None:
    legend = OutcomeSet([event("a", Fall.left), event("b", Fall.right)], first=["a"]).legend
    expected = np.array([[[0.9, 0.2, 0.9, 0.7], [0.5, 0.3, 0.1, 0.3], [0.4, 1e-9, 0.0, 0.0]]])
    fitting = before_the_end(expected, legend)
    np.testing.assert_allclose(fitting[0, :, 0], [0.9, 0.3, 0], atol=1e-9)
    np.testing.assert_array_equal(fitting[0, :, 1:], expected[0, :, 1:])
    assert before_the_end(fitting, legend) is fitting


def minimised(outcomes: OutcomeSet, target: FloatArray, known: IntArray | None) -> FloatArray:
    """[horizon, outcome]: what a network with one input learns from these targets [batch, ...]."""
    made = OutcomeNetwork(
        spaces.Box(-1, 1, (1,)),
        spaces.Discrete(2),
        Columns.of(outcomes).ended_by((1, 2)),
        horizon=target.shape[1],
        hidden=[4],
    )
    optimizer = torch.optim.Adam(made.parameters(), lr=0.05)
    observations, actions = (
        np.zeros((len(target), 1), dtype=np.float32),
        np.zeros(len(target), dtype=np.int64),
    )
    wanted = torch.from_numpy(target[..., made.columns.order])
    weight = None
    if known is not None:
        weight = torch.from_numpy(censoring_weights(known, target[..., -1])).float()
    for _ in range(400):
        outputs = made.outputs(made.features(observations), actions)
        steps, times = losses(made, outputs, Targets(wanted, weight))
        optimizer.zero_grad()
        (steps.mean() + times.mean()).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    with torch.no_grad():
        found = made.expected(made.outputs(made.features(observations[:1]), actions[:1])).numpy()
    return np.asarray(found[0][..., np.argsort(made.columns.order)])


@pytest.mark.parametrize("limited", [False, True])
def test_what_minimises_the_losses_is_the_mean_of_the_targets(limited: bool) -> None:
    """Also where windows end at random, so that only the beginnings of futures are known."""
    outcomes, rng, horizon, rows = fall_outcomes(), np.random.default_rng(0), 4, 4000
    target = np.zeros((rows, horizon, 8), dtype=np.float32)
    running, leant = np.ones(rows, dtype=bool), np.zeros(rows, dtype=bool)
    for h in range(horizon):
        leans = running & (rng.random(rows) < np.where(leant, 0.8, 0.2))
        ends = running & (rng.random(rows) < 0.25)
        left = ends & leans
        target[:, h, 0], target[:, h, 5] = leans, leans & ~leant
        target[:, h, 1] = target[:, h, 6] = left
        target[:, h, 2], target[:, h, 3], target[:, h, 7] = ends & ~leans, ends, ends
        running, leant = running & ~ends, leant | leans
    known = None
    truth = target.mean(axis=0)
    if limited:
        known = rng.integers(1, horizon, endpoint=True, size=rows)
        known[target[np.arange(rows), :, 7].cumsum(axis=1)[np.arange(rows), known - 1] > 0] = horizon
        target = target * (np.arange(horizon) < known[:, None])[..., None]
    np.testing.assert_allclose(minimised(outcomes, target, known), truth, atol=0.04)


def test_windows_that_were_cut_are_made_up_for() -> None:
    """Terminations are known for sure, what runs on only where nothing cuts it: weights undo that choice."""
    rng, rows, horizon = np.random.default_rng(0), 50_000, 12
    lives, cut = rng.geometric(0.15, rows) - 1, rng.integers(1, 20, rows)
    ended = (np.arange(horizon) == lives[:, None]).astype(np.float32)
    known = np.where((lives < cut) | (cut >= horizon), horizon, cut)
    weight = censoring_weights(known, ended)
    by = np.cumsum(ended, axis=1)
    truth = 1 - 0.85 ** np.arange(1, horizon + 1)
    np.testing.assert_allclose((weight * by).sum(axis=0) / weight.sum(axis=0), truth, atol=0.015)
    naive = weight > 0
    assert ((naive * by).sum(axis=0) / naive.sum(axis=0) - truth).max() > 0.03
    assert (censoring_weights(np.full(3, 4), np.zeros((3, 4))) == 1).all()


def test_a_deterministic_policy_recognises_its_own_actions_whoever_took_them() -> None:
    env = Environment("CartPole-v1")
    policy = DiscreteFunctionPolicy(lambda seen: (seen[:, 2] > 0).astype(np.int64), 0.99, env.action_space)
    outcomes = OutcomeSet([event("falls", lambda t: t.terminated)])
    learner = network(env, policy, outcomes, fit_updates=1)
    seen = np.random.default_rng(0).normal(size=(301, 4)).astype(np.float32)
    actions = np.random.default_rng(1).integers(2, size=300)
    never = np.zeros(300, dtype=np.bool_)
    stream = np.zeros(300, dtype=np.int64)
    learner.update(Transitions(seen[:-1], actions, seen[1:], np.ones(300), never, never, stream=stream))
    learner.fit()
    kept = learner._replay.kept
    np.testing.assert_array_equal(kept.own, actions == (seen[:-1, 2] > 0))
    explanation = Explainer(learner, policy, outcomes.legend).explain(seen)
    assert np.isfinite(explanation.expected).all()
