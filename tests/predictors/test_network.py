"""FHTD with networks: comes close to the exact solution, and keeps the laws of what it predicts."""

import json
import zipfile
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.spaces import Discrete

from tests.support import small_mdp
from tests.support.networks import (
    ACTIONS,
    HORIZON,
    STATES,
    Restless,
    collected,
    dial_outcomes,
    network,
    small_network,
    small_transitions,
    taught,
    turn,
    wait,
)
from tpd.core.outcomes import Observed, Outcome, OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import (
    Array,
    BoolArray,
    FittingLearner,
    FloatArray,
    Learner,
    Policy,
    Transitions,
)
from tpd.envs import Environment
from tpd.envs.spaces import from_plain
from tpd.policies.function import DiscreteFunctionPolicy, FunctionPolicy
from tpd.predictors.episode_split import HOLD_OUT, EpisodeSplit
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.network.columns import Columns, next_actions, only_at_the_end
from tpd.predictors.network.encoders import CategoryEncoder, VectorEncoder, encoded_size, tensors
from tpd.predictors.network.learner import NetworkFHTD
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.pair_network import Heads
from tpd.predictors.network.predictor import ROWS_AT_ONCE, read
from tpd.predictors.network.replay_buffer import ReplayBuffer
from tpd.sources.collection import play
from tpd.sources.exploration import Exploration
from tpd.store import explainers


def exact(policy: Any) -> FloatArray:
    """[pair, horizon, outcome]"""
    solution = ExactSolution(small_mdp.environment(), policy, small_mdp.outcomes(), horizon=HORIZON)
    return solution.predict(STATES, ACTIONS)


def typical_errors(learner: NetworkFHTD, policy: Any) -> FloatArray:
    """[outcome]: root mean square over pairs and horizons; the last outcome is termination."""
    error = learner.predict(STATES, ACTIONS) - exact(policy)
    return np.asarray(np.sqrt(np.square(error).mean(axis=(0, 1))))


# What is learned


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("form", "discount", "stochastic"),
    [
        ("efo", 1.0, True),
        ("fhgvf", 0.9, False),
        pytest.param("efo", 1.0, False, marks=pytest.mark.slow),
        pytest.param("fhgvf", 0.9, True, marks=pytest.mark.slow),
    ],
)
def test_comes_close_to_the_exact_solution(form: str, discount: float, stochastic: bool) -> None:
    """Events of a partition, a first occurrence and termination; for stochastic policies too."""
    policy, other = small_mdp.policy(stochastic), small_mdp.policy(not stochastic)
    learner = small_network(policy, form=form, discount=discount)
    taught(learner, small_transitions(policy), updates=400)
    errors = typical_errors(learner, policy)
    assert errors.shape == (4,)
    assert (errors < 0.03).all()
    assert typical_errors(learner, other)[:2].min() > 0.06  # of another policy it would not be true
    odd, _, first, _ = np.moveaxis(learner.predict(STATES, ACTIONS), 2, 0)
    assert (first.sum(axis=1) < 1.1).all()
    assert (odd.sum(axis=1) > 1.5).any()


@pytest.mark.no_cover
def test_transitions_of_another_policy_serve() -> None:
    """The next action is the policy's own, whoever took the actions that were seen."""
    behaviour, policy = small_mdp.policy(stochastic=False), small_mdp.policy(stochastic=True)
    learner = taught(small_network(policy), small_transitions(behaviour), updates=400)
    assert (typical_errors(learner, policy) < 0.03).all()


def test_ordered_data_of_unknown_origin_are_backed_up_over_several_steps() -> None:
    """Tree backups need fewer updates than one-step targets, whoever chose the actions."""
    policy, exploration = small_mdp.policy(), Exploration(0.5)
    episodes = play(
        small_mdp.environment(), policy, generator(0, "test"), episodes=1500, exploration=exploration
    )
    steps = np.arange(len(episodes.transitions))
    stream = np.searchsorted(episodes.begins, steps, side="right") - 1
    transitions = replace(episodes.transitions, own=None, stream=stream)
    errors = []
    for window in (1, None):
        learner = small_network(
            policy, fit_updates=200, batch_size=128, target_update_rate=0.02, window=window
        )
        learner.update(transitions)
        learner.fit()
        errors.append(np.mean((learner.predict(STATES, ACTIONS) - exact(policy)) ** 2))
    assert errors[1] < 0.75 * errors[0]


def test_targets_of_a_stochastic_policy_are_expectations() -> None:
    """Nothing in them is drawn: the same transitions give the same targets again."""
    policy = small_mdp.policy()
    learner = taught(small_network(policy), small_transitions(policy, 500), updates=20)
    rows = np.arange(300)
    first, again = (
        learner._replay.targets(rows, learner.target_network, bootstrap=True).outcome for _ in range(2)
    )
    assert torch.equal(first, again)


@pytest.mark.no_cover
@pytest.mark.parametrize("form", ["efo", pytest.param("fhgvf", marks=pytest.mark.slow)])
def test_continuous_actions_are_told_apart(form: str) -> None:
    """An event and a real outcome whose future depends on the action, each step the other way round."""
    env = Environment("Dial-v0")
    policy = FunctionPolicy(turn, 0.9, env.action_space)
    learner = network(env, policy, dial_outcomes(), form=form, horizon=4)
    taught(learner, collected(env, policy, 10_000), updates=500)
    actions = np.linspace(-1, 1, 9, dtype=np.float32)[:, None]
    observations = np.tile(np.array([[0.4, 0]], dtype=np.float32), (9, 1))
    a = actions[:, 0]
    dial = np.stack([np.full(9, 0.4), a, -a, a], axis=1)
    predicted = learner.predict(observations, actions)
    np.testing.assert_allclose(predicted[:, :, 0], (dial + 1) / 2, atol=0.12)
    np.testing.assert_allclose(predicted[:, :, 1], 3 * dial, atol=0.4)
    np.testing.assert_allclose(predicted[:, :, 2], 0, atol=0.05 if form == "efo" else 0.12)
    assert (learner.support(observations, actions) == 10_000).all()


def test_next_continuous_actions_are_drawn_from_the_policy() -> None:
    env, policy = Environment("Dial-v0"), Restless()
    far = OutcomeSet([event("far", lambda t: np.abs(t.action[:, 0]) > 0.5)])
    learner = taught(network(env, policy, far, horizon=3), collected(env, policy, 5_000), updates=400)
    here = np.array([[0.3, 1]], dtype=np.float32), np.full((1, 1), 0.1, dtype=np.float32)
    np.testing.assert_allclose(learner.predict(*here)[0, :, 0], [0, 1, 1], atol=0.1)


def clock_outcomes(partition: bool = True) -> OutcomeSet:
    """Something that happens at every step; a softmax, or a sigmoid."""
    return OutcomeSet([event("ticks", lambda t: np.ones(len(t)), 1.0)], partition=partition)


HEADS = {"softmax": (True, "efo"), "sigmoid": (False, "efo"), "values": (False, "fhgvf")}
ENDINGS = {
    "truncated": (0.0, False, 1.0),  # only ever cut off by the time limit, a third of all steps
    "terminated": (0.3, False, 0.7),
    "confused": (0.0, True, 2 / 3),  # what taking the time limit for an ending would look like
}


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("breaks", "confused", "goes_on", "partition", "form"),
    [
        pytest.param(
            *ENDINGS[ending],
            *HEADS[head],
            id=f"{ending}-{head}",
            marks=[] if ending != "terminated" and head == "sigmoid" else pytest.mark.slow,
        )
        for ending in ENDINGS
        for head in HEADS
    ],
)
def test_a_time_limit_is_no_ending(
    breaks: float, confused: bool, goes_on: float, partition: bool, form: str
) -> None:
    env = Environment("Clock-v0", kwargs={"breaks": breaks})
    policy = DiscreteFunctionPolicy(wait, 0.99, Discrete(2))
    transitions = collected(env, policy, 5_000)
    assert transitions.truncated.mean() > 0.1
    if confused:
        transitions = replace(transitions, terminated=transitions.terminated | transitions.truncated)
    # windows would show that it is always the third step
    window = 1 if confused else None
    learner = network(env, policy, clock_outcomes(partition), form=form, hidden=[16], window=window)
    taught(learner, transitions, updates=250)
    explainer = Explainer(learner, policy, learner.outcomes.legend)
    explanation = explainer.explain(np.full((1, 1), 0.5, dtype=np.float32))
    running = goes_on ** np.arange(HORIZON + 1)
    np.testing.assert_allclose(explanation.running[0], running[1:], atol=0.08)
    np.testing.assert_allclose(explanation.expected[0, :, 0], running[:-1], atol=0.08)


# What is predicted


def mixed_outcomes() -> OutcomeSet:
    """A partition between first occurrences and real numbers, in an order that no network has them in."""
    return OutcomeSet(
        [
            Outcome("twice", lambda t: 2 * t.reward, 0, 2),
            event("odd", small_mdp.odd, first=True),
            event("odd", small_mdp.odd, 1.0),
            Outcome("state", lambda t: t.next_observation, 0, 5),
            event("even", small_mdp.even, 0.0),
        ],
        partition=True,
    )


@pytest.mark.no_cover
def test_every_outcome_is_learned_as_its_kind_and_told_in_its_place() -> None:
    policy, outcomes = small_mdp.policy(), mixed_outcomes()
    columns = Columns.of(outcomes)
    assert columns == Columns(6, partition=(2, 4), events=(5,), first=(1,), real=(0, 3))
    assert (columns.channels, columns.times(HORIZON)) == (6, HORIZON + 1)
    learner = network(small_mdp.environment(), policy, outcomes)
    taught(learner, small_transitions(policy), updates=400)
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    error = learner.predict(STATES, ACTIONS) - solution.predict(STATES, ACTIONS)
    typical = np.sqrt(np.square(error).mean(axis=(0, 1)))
    assert (typical < np.array([0.06, 0.03, 0.03, 0.2, 0.03, 0.03])).all()


def up(t: Transitions) -> BoolArray:
    return np.asarray(t.next_observation[:, 0] > 0)


def down(t: Transitions) -> BoolArray:
    return ~up(t)


def test_next_actions_exclude_each_other_without_a_partition() -> None:
    """They have a sigmoid each, whose sum may exceed 1."""
    policy = small_mdp.policy()
    took = [event(f"took {a}", partial(lambda t, a: t.action == a, a=a)) for a in range(2)]
    repeated = event("took 1 again", lambda t: t.action == 1)
    outcomes = OutcomeSet([*took, event("odd", small_mdp.odd), repeated], first=["took 1 again"])
    learner = network(small_mdp.environment(), policy, outcomes)
    taught(learner, small_transitions(policy, 2000), updates=5)
    columns = learner.network.columns
    assert columns.exclusive == (0, 1)  # "odd" is decided by the state, and the last has a first occurrence
    with torch.no_grad():
        copied = learner.target_network
        copied.steps.heads.shared.bias.add_(3)  # type: ignore[union-attr]
        alone = copied.expected(copied.outputs(copied.features(STATES, ACTIONS), ACTIONS)).numpy()
    alone = alone[..., np.argsort(columns.order)]
    predicted = learner.predict(STATES, ACTIONS)
    ended = np.cumsum(predicted[..., -1], axis=1) - predicted[..., -1]
    assert (alone[..., :2].sum(axis=2) + ended).max() > 1.05
    assert (predicted[..., :2].sum(axis=2) + ended).max() <= 1 + 1e-5
    np.testing.assert_allclose(
        predicted[..., 0] * alone[..., 1], predicted[..., 1] * alone[..., 0], atol=1e-5
    )  # their ratio is kept
    np.testing.assert_array_equal(predicted[..., 2:], alone[..., 2:])
    again = network(small_mdp.environment(), policy, outcomes)
    again.restore(learner.state())
    np.testing.assert_array_equal(again.predict(STATES, ACTIONS), predicted)
    assert Columns.read(json.loads(json.dumps(asdict(columns)))) == columns
    with pytest.raises(ValueError, match="must be events"):
        replace(columns, exclusive=(7,))


def test_few_transitions_do_not_tell_what_is_a_next_action() -> None:
    columns = Columns(4, events=(0, 1), real=(2,))
    actions = np.arange(1200) % 2
    outcome = np.stack([actions == 0, actions == 1, actions], axis=1).astype(np.float32)
    assert next_actions(columns, actions, outcome) == (0, 1)
    assert next_actions(columns, actions[:900], outcome[:900]) == ()
    outcome[0, 1] = 1  # the state decides once
    assert next_actions(columns, actions, outcome) == ()


def prizes() -> OutcomeSet:
    """A reward at termination, which depends on the last state, and one at every step."""
    last = Outcome("prize", lambda t: t.terminated * (1 + t.next_observation % 2), 0, 2)
    return OutcomeSet([last, Outcome("state", lambda t: t.next_observation, 0, 5)])


def test_what_is_only_given_at_the_end_is_predicted_given_the_end() -> None:
    policy, outcomes = small_mdp.policy(), prizes()
    learner = network(small_mdp.environment(), policy, outcomes)
    taught(learner, small_transitions(policy), updates=400)
    columns = learner.network.columns
    assert columns.final == (0,)
    predicted = learner.predict(STATES, ACTIONS)
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    exact = solution.predict(STATES, ACTIONS)
    assert np.sqrt(np.square(predicted - exact)[..., 0].mean()) < 0.03
    mean = predicted[..., 0] / predicted[..., -1]
    assert ((mean > 0.8) & (mean < 2.2)).all()
    again = network(small_mdp.environment(), policy, outcomes)
    again.restore(learner.state())
    np.testing.assert_array_equal(again.predict(STATES, ACTIONS), predicted)
    assert Columns.read(json.loads(json.dumps(asdict(columns)))) == columns
    for wrong in ({"events": (0,), "real": (1,)}, {"real": (0, 1, 2)}, {"partition": (1,), "real": (0, 2)}):
        with pytest.raises(ValueError, match="given at termination"):
            Columns(3, final=(0,), **wrong)


def test_few_ends_or_one_value_before_them_do_not_tell_that_an_outcome_is_final() -> None:
    columns = Columns(3, real=(0, 1))
    ended = np.arange(1200) % 40 == 0
    outcome = np.stack([7.0 * ended, np.ones(1200), ended], axis=1)
    assert only_at_the_end(columns, outcome) == (0,)
    assert only_at_the_end(columns, outcome[:900]) == ()
    assert only_at_the_end(Columns(3, partition=(0, 1), events=(2,)), outcome) == ()
    assert only_at_the_end(Columns.all_real(3), outcome) == ()
    rare = np.where(np.cumsum(ended)[:, None] <= 19, outcome, 0)
    assert only_at_the_end(columns, rare) == ()
    outcome[5, 0] = 0.1
    assert only_at_the_end(columns, outcome) == ()


@pytest.mark.parametrize("updates", [0, 50])
def test_probabilities_are_probabilities_however_far_out(updates: int) -> None:
    env, policy = (
        Environment("Clock-v0", kwargs={"breaks": 0.2}),
        DiscreteFunctionPolicy(wait, 0.99, Discrete(2)),
    )
    halves = [event("up", up, 0.0), event("down", down, 0.0), event("down", down, first=True)]
    learner = network(env, policy, OutcomeSet(halves, partition=True))
    taught(learner, collected(env, policy, 500), updates)
    rng = np.random.default_rng(0)
    seen = (10.0 ** rng.uniform(-3, 6, (200, 1)) * rng.choice([-1, 1], (200, 1))).astype(np.float32)
    actions = rng.integers(2, size=200)
    predicted = learner.predict(seen, actions)
    assert np.isfinite(predicted).all()
    assert ((predicted >= 0) & (predicted <= 1)).all()
    copied = learner.target_network
    with torch.no_grad():
        outputs = copied.outputs(copied.features(seen), actions)
        partition = copied.channels(outputs).partition.softmax(dim=-1)
    np.testing.assert_allclose(partition.sum(dim=-1).numpy(), 1, atol=1e-5)
    np.testing.assert_allclose(partition[..., :2].numpy(), predicted[:, :, :2], atol=1e-6)
    ended = Explainer(learner, policy, learner.outcomes.legend).explain(seen, actions).ended
    np.testing.assert_allclose(partition[..., 2].numpy(), ended, atol=1e-5)


def test_heads_compute_only_what_is_asked_and_that_rightly() -> None:
    torch.manual_seed(0)
    heads, features = Heads(5, num_actions=4, outputs=3), torch.randn(50, 5)
    torch.nn.init.normal_(heads.difference)
    torch.nn.init.normal_(heads.offset)
    narrow = heads.narrow(features)
    every = heads.shared(features)[:, None] + torch.einsum("br,aor->bao", narrow, heads.difference)
    every = every + heads.offset
    for actions in (torch.randint(4, (50,)), torch.full((50,), 2), torch.arange(50) % 4):
        torch.testing.assert_close(heads(features, actions), every[torch.arange(50), actions])


def test_a_batch_is_answered_as_its_rows_are() -> None:
    policy = small_mdp.policy()
    learner = taught(small_network(policy, hidden=[4]), small_transitions(policy, 200), updates=3)
    rng = np.random.default_rng(0)
    states, actions = rng.integers(6, size=ROWS_AT_ONCE + 5), rng.integers(3, size=ROWS_AT_ONCE + 5)
    many = learner.predict(states, actions)
    assert learner.predict(states[:0], actions[:0]).shape == (0, HORIZON, 4)
    np.testing.assert_allclose(many, learner.predict(STATES, ACTIONS)[states * 3 + actions], atol=1e-6)
    with pytest.raises(ValueError, match="numbered from 0 to 2"):
        learner.predict(np.array([0]), np.array([3]))


def test_support_is_how_often_an_action_was_tried() -> None:
    policy = small_mdp.policy()
    batch = small_transitions(policy, 300)
    learner = taught(small_network(policy), batch[batch.action != 2], updates=0)
    counts = np.bincount(batch.action, minlength=3) * [1, 1, 0]
    np.testing.assert_array_equal(learner.support(STATES, ACTIONS), counts[ACTIONS])


# How it learns


def test_updates_are_as_many_as_asked_for() -> None:
    policy = small_mdp.policy()
    learner = small_network(policy, updates_per_step=0.05, hidden=[4], batch_size=8)
    assert isinstance(learner, Learner)
    assert isinstance(learner, FittingLearner)
    batch = small_transitions(policy, 999)
    for start in range(0, 999, 27):
        learner.update(batch[start : start + 27])
    assert learner.updates == 49
    figures = learner.metrics()
    assert figures["explainer/updates"] == 49
    assert figures["explainer/loss"] > 0
    assert "explainer/loss" not in learner.metrics()  # told once


def test_fitting_makes_all_updates_and_keeps_the_best_for_the_select_episodes() -> None:
    policy = small_mdp.policy()
    counted: list[int] = []
    learner = small_network(policy, horizon=2, fit_updates=300, batch_size=64)
    learner.fit(counted.append)  # nothing came, so there is nothing to fit
    assert not counted
    learner.update(small_transitions(policy, 20_000))
    before = learner.select_losses()
    learner.fit(counted.append)
    assert sum(counted) == learner.updates == 300
    np.testing.assert_allclose(learner.select_losses(), learner._selection.losses, rtol=1e-5)
    assert learner.select_losses()[0] < before[0]
    learner.fit(counted.append)  # once is enough
    assert learner.updates == 300


def test_episodes_are_selected_as_a_whole_and_not_trained_on() -> None:
    """Only the select episodes show something that no other shows."""
    env, policy = Environment("Clock-v0"), DiscreteFunctionPolicy(wait, 0.99, Discrete(2))
    batch = collected(env, policy, 3_000)
    outcomes = OutcomeSet([event("shown", lambda t: t.reward)])
    learner = network(env, policy, outcomes, horizon=1, hidden=[8], learning_rate=0.05)
    parts = slice(0, 777), slice(777, 3_000)  # episodes go on over batches
    split = EpisodeSplit()
    selecting = np.concatenate([split.held_out(batch[part]) for part in parts])
    assert abs(selecting.mean() - 1 / HOLD_OUT) < 0.03
    assert batch.stream is not None
    for stream in range(50):
        mine = batch.stream == stream
        ends = (batch.terminated | batch.truncated)[mine][:-1]
        np.testing.assert_array_equal(selecting[mine][1:][~ends], selecting[mine][:-1][~ends])
    for part in parts:
        learner.update(replace(batch, reward=selecting.astype(np.float64))[part])
    for _ in range(200):
        learner.learn()
    assert learner.predict(batch.observation, batch.action)[:, :, 0].max() < 0.01
    assert learner.select_losses()[0] > 3


def global_numpy_state() -> str:
    return str(np.random.get_state())  # noqa: NPY002


def test_the_same_seed_learns_the_same_and_no_other_generator_is_touched() -> None:
    policy = small_mdp.policy()
    batch = small_transitions(policy, 500)
    before, before_numpy = torch.random.get_rng_state(), global_numpy_state()
    learners = [taught(small_network(policy, seed=seed), batch, updates=20) for seed in (3, 3, 4)]
    answers = [learner.predict(STATES, ACTIONS) for learner in learners]
    np.testing.assert_array_equal(answers[0], answers[1])
    assert not np.allclose(answers[0], answers[2])
    assert torch.equal(before, torch.random.get_rng_state())
    assert before_numpy == global_numpy_state()


class Remembering:
    """Carries one number that it never looks at."""

    discount = 0.9

    def __init__(self) -> None:
        self.version = 0

    def action(self, observations: Array) -> Array:
        return wait(observations)

    def sample(self, observations: Array, rng: np.random.Generator) -> Array:
        return wait(observations)

    def probabilities(self, observations: Array) -> FloatArray:
        return np.eye(2)[wait(observations)]

    def action_values(self, observations: Array) -> None:
        return None

    def start(self, count: int) -> FloatArray:
        return np.zeros((count, 1), dtype=np.float32)

    def advance(self, observations: Array) -> FloatArray:
        return observations[:, -1:] + 1


@pytest.mark.parametrize(("changes", "expected"), [(False, 0.5), (True, 1.0)])
def test_hidden_states_of_other_weights_are_forgotten(changes: bool, expected: float) -> None:
    """What was kept before the hidden state changed its meaning is not learned from any more."""
    env, policy = Environment("Clock-v0"), Remembering()
    batch = collected(env, policy, 1_000)
    assert batch.observation.shape == (1_000, 2)
    outcomes = OutcomeSet([event("shown", lambda t: t.reward)])
    learner = network(env, policy, outcomes, horizon=1, hidden=[8])
    learner.update(replace(batch, reward=np.zeros(1_000)))
    policy.version += changes
    learner.update(replace(batch, reward=np.ones(1_000)))
    for _ in range(200):
        learner.learn()
    predicted = learner.predict(batch.observation[:20], np.zeros(20, dtype=np.int64))[:, 0, 0]
    np.testing.assert_allclose(predicted, expected, atol=0.12)


def numbered(numbers: Array, stream: Array | None = None) -> Transitions:
    """Transitions from one number to the next."""
    never = np.zeros(len(numbers), dtype=np.bool_)
    return Transitions(
        numbers, numbers * 2, numbers + 1, numbers.astype(float), never, never, stream=stream, own=~never
    )


@pytest.mark.parametrize("sizes", [[3], [10], [4, 4, 4, 4], [9, 9], [25], [1] * 23, [7, 25, 2]])
def test_replay_keeps_the_newest(sizes: list[int]) -> None:
    replay, begin = ReplayBuffer(10), 0
    for size in sizes:
        numbers = np.arange(begin, begin + size)
        column = numbers.astype(np.float32)[:, None]
        steps = numbered(numbers, np.zeros(size, dtype=np.int64))
        replay.add(steps, Observed(column, column), np.zeros(size, bool))
        begin += size
    assert len(replay) == min(10, begin)
    kept = replay.kept
    assert sorted(kept.observation) == list(range(max(0, begin - 10), begin))
    np.testing.assert_array_equal(kept.action, kept.observation * 2)
    np.testing.assert_array_equal(kept.outcome[:, 0], kept.observation)
    linked = kept.following >= 0
    assert linked.sum() == len(replay) - 1  # the newest has no follower yet
    followers = kept.observation[kept.following[linked]]
    np.testing.assert_array_equal(followers, kept.next_observation[linked])
    replay.clear()
    assert len(replay) == 0


def test_observations_are_brought_to_zero_mean_and_unit_variance() -> None:
    rng = np.random.default_rng(0)
    values = rng.normal([3, -200, 0], [0.01, 50, 0], (1000, 3)).astype(np.float32)
    encoder = VectorEncoder(3)
    encoder.eval()
    for part in (values[:1], values[1:300], values[300:]):
        encoder.see(torch.from_numpy(part))
    np.testing.assert_allclose(encoder.mean.numpy(), values.mean(axis=0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(encoder.variance.numpy(), values.var(axis=0), rtol=1e-2, atol=1e-8)
    scaled = encoder(torch.from_numpy(values)).numpy()
    np.testing.assert_allclose(scaled.reshape(len(values), 3, -1)[:, :2, 0].std(axis=0), 1, rtol=1e-2)
    assert np.isfinite(encoder(torch.full((1, 3), 1e30)).numpy()).all()


# What is kept


@pytest.mark.parametrize("form", ["efo", "fhgvf"])
@pytest.mark.parametrize("world", ["numbers", "vectors"])
def test_what_is_saved_answers_alike_and_is_no_pickle(form: str, world: str, tmp_path: Path) -> None:
    env = small_mdp.environment() if world == "numbers" else Environment("Dial-v0")
    policy: Policy = (
        small_mdp.policy()
        if world == "numbers"
        else FunctionPolicy(turn, 0.9, Environment("Dial-v0").action_space)
    )
    outcomes = mixed_outcomes() if world == "numbers" else dial_outcomes()
    batch = collected(env, policy, 300)
    learner = taught(network(env, policy, outcomes, form=form, hidden=[8, 8]), batch, updates=10)
    explainers.save(Explainer(learner, policy, outcomes.legend), env, tmp_path)
    loaded = explainers.load(tmp_path)
    pairs = batch.observation[:50], batch.action[:50]
    explanation = loaded.explain(*pairs)
    original = Explainer(learner, policy, outcomes.legend).explain(*pairs)
    np.testing.assert_array_equal(explanation.expected, original.expected)
    np.testing.assert_array_equal(explanation.running, original.running)
    np.testing.assert_array_equal(explanation.support, original.support)
    assert explanation.legend == original.legend
    assert (explanation.discount, loaded.predictor.horizon) == (0.9, HORIZON)
    assert {path.name for path in tmp_path.iterdir()} == {"explainer.json", "arrays.npz", "agent.npz"}
    for name in zipfile.ZipFile(tmp_path / "arrays.npz").namelist():
        assert name.endswith(".npy")
    with np.load(tmp_path / "arrays.npz", allow_pickle=False) as stored:
        assert all(stored[name].dtype.kind in "fiu" for name in stored)
    if world == "vectors":  # its policy is a function of this module
        with pytest.raises(ValueError, match=r"trust=\[tests\].*: pass the actions to explain"):
            loaded.explain(pairs[0])
        loaded = explainers.load(tmp_path, trusted=["tests"])
    np.testing.assert_array_equal(loaded.explain(pairs[0]).actions, policy.action(pairs[0]))


# Pictures and dicts


class Camera(gym.Env[Any, Any]):
    """A grey picture, alone or beside a number; it goes dark when the episode is about to end."""

    action_space = spaces.Discrete(2)

    def __init__(self, form: str = "last", render_mode: str | None = None) -> None:
        self.form, self.render_mode = form, render_mode
        first, last = (spaces.Box(0, 255, shape, np.uint8) for shape in ((1, 36, 36), (36, 36, 1)))
        speed = spaces.Box(-1, 1, (2,))
        forms: dict[str, spaces.Space[Any]] = {
            "first": first,
            "last": last,
            "dict": spaces.Dict({"picture": last, "speed": speed}),
            "numbered": spaces.Dict({"gear": spaces.Discrete(3), "speed": speed}),
            "cells": spaces.Dict({"cells": spaces.MultiDiscrete([3, 4], start=[0, 2])}),
            "map": spaces.Box(0, 255, (5, 5, 3), np.uint8),
        }
        self.observation_space = forms[form]

    def _look(self) -> Any:
        picture = np.full((36, 36, 1), self.light, dtype=np.uint8)
        picture[:18] //= 2
        speed = np.array([self.light / 255, 0.5], dtype=np.float32)
        looks: dict[str, Any] = {
            "first": np.moveaxis(picture, -1, 0),
            "last": picture,
            "dict": {"picture": picture, "speed": speed},
            "numbered": {"gear": self.light // 100, "speed": speed},
            "cells": {"cells": np.array([self.light // 100, 2 + self.light // 64])},
            "map": np.full((5, 5, 3), self.light, dtype=np.uint8),
        }
        return looks[self.form]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.light = int(self.np_random.integers(50, 255))
        return self._look(), {}

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        dark = self.light < 30
        self.light = int(self.np_random.integers(255))
        return self._look(), 0.0, dark, False, {}


gym.register(id="Camera-v0", entry_point="tests.predictors.test_network:Camera", max_episode_steps=20)


def camera(form: str, updates: int) -> tuple[NetworkFHTD, Transitions]:
    env, policy = (
        Environment("Camera-v0", kwargs={"form": form}),
        DiscreteFunctionPolicy(wait, 0.99, Discrete(2)),
    )
    outcomes = OutcomeSet([event("ends", lambda t: t.terminated)])
    learner = network(env, policy, outcomes, horizon=2, batch_size=8)
    batch = collected(env, policy, 60)
    return taught(learner, batch, updates), batch


def test_pictures_look_the_same_with_their_channels_first_or_last() -> None:
    answers = []
    for form in ("first", "last"):
        learner, batch = camera(form, updates=2)
        answers.append(learner.predict(batch.observation, batch.action))
    np.testing.assert_allclose(answers[0], answers[1], atol=1e-6)


FORMS = ["first", "last", "dict", "numbered", "cells", "map"]


@pytest.mark.parametrize("form", FORMS)
def test_the_space_alone_says_how_pictures_dicts_and_categories_are_encoded(form: str) -> None:
    learner, batch = camera(form, updates=2)
    expected = learner.predict(batch.observation, batch.action)
    assert np.ptp(expected[:, 0, 0]) > 0  # it looks at what is there
    description = json.loads(json.dumps(learner.description()))
    again = read(description, learner.arrays())
    np.testing.assert_array_equal(again.predict(batch.observation, batch.action), expected)
    features, weights = encoded_size(from_plain(description["observation_space"]))
    encoder = again.network.parts[0].encoder
    assert 0 < features <= encoder.features_dim
    assert weights <= sum(value.numel() for value in encoder.state_dict().values())


def test_categories_that_there_are_not_have_no_support() -> None:
    learner, batch = camera("cells", updates=1)
    here = batch.observation[:2].copy()
    here["cells"][1, 0] = 7
    assert learner.support(here, batch.action[:2]).astype(bool).tolist() == [True, False]


def test_categories_are_one_hot() -> None:
    encoder = CategoryEncoder([2, 3], [0, 5])
    encoded = encoder(torch.tensor([[1, 5], [0, 7]]))
    assert encoded.tolist() == [[0, 1, 1, 0, 0], [1, 0, 0, 0, 1]]
    assert encoder.unseen(torch.tensor([[1, 5], [2, 5], [0, 4]])).tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"horizon": 0}, "horizon must be 1 or more"),
        ({"form": "both"}, "form must be one of efo, fhgvf"),
        ({"discount": 0.0}, "discount must lie in"),
        ({"form": "fhgvf", "discount": 0.3, "horizon": 30}, "form=efo"),
        ({"target_update_rate": 0}, "target_update_rate must lie in"),
        ({"hidden": [8, 0]}, "hidden must be 1 or more, got 0"),
        ({"replay_size": 0}, "replay_size must be 1 or more"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_network(small_mdp.policy(), **settings)


def test_terminations_add_up_to_no_more_than_one_and_to_what_a_partition_leaves() -> None:
    env, policy = small_mdp.environment(), small_mdp.policy()
    learner = network(env, policy, small_mdp.outcomes())
    learner.update(collected(env, policy, 500))
    for _ in range(3):
        explanation = Explainer(learner, policy, learner.outcomes.legend).explain(np.arange(6))
        assert (np.diff(explanation.running, axis=1) <= 1e-6).all()
        assert explanation.running.min() >= -1e-6
        for _ in range(60):
            learner.learn()
    explanation = Explainer(learner, policy, learner.outcomes.legend).explain(np.arange(6))
    np.testing.assert_allclose(explanation.ended[:, 1:], 1 - explanation.running[:, :-1], atol=0.01)


def test_what_was_not_learned_yet_does_not_look_like_an_ending() -> None:
    env = Environment("Dial-v0")
    policy = FunctionPolicy(turn, 0.9, env.action_space)
    learner = network(env, policy, dial_outcomes())
    running = Explainer(learner, policy, learner.outcomes.legend).explain(np.zeros((1, 2))).running
    assert running[0, -1] > 0.8


def test_an_action_without_a_choice_is_no_trouble() -> None:
    narrow = spaces.Box(np.array([-1, 0], dtype=np.float32), np.array([1, 0], dtype=np.float32))
    made = OutcomeNetwork(spaces.Box(-1, 1, (2,)), narrow, Columns.all_real(1), horizon=2, hidden=[4])
    features = made.features(np.zeros((3, 2), dtype=np.float32), np.zeros((3, 2), dtype=np.float32))
    assert torch.isfinite(features).all()


def test_what_lies_nowhere_near_what_was_seen_is_unseen() -> None:
    encoder = VectorEncoder(2)
    observations = torch.as_tensor(np.random.default_rng(0).normal(size=(5000, 2)), dtype=torch.float32)
    rare = torch.cat([observations[:, :1], (torch.arange(5000) % 1000 == 0).float()[:, None]], dim=1)
    assert not encoder.unseen(rare).any()  # as long as nothing was seen, nothing can be far from it
    encoder.see(rare)
    assert not encoder.unseen(rare).any()
    assert encoder.unseen(torch.tensor([[99.0, 0.0], [0.0, 0.0]])).tolist() == [True, False]


def test_one_observation_of_a_dict_space_becomes_tensors() -> None:
    """A single row has strides that torch refuses, and NumPy takes for contiguous."""
    one = np.zeros(1, dtype=np.dtype([("position", np.int64), ("wind", np.float32, (1,))]))
    found = tensors(one)
    assert {key: tuple(value.shape) for key, value in found.items()} == {"position": (1,), "wind": (1, 1)}
