"""Q-learning and its hook: what learners are shown, and when."""

import numpy as np
import pytest

from tests.support import Compose, small_mdp
from tests.support.q_learning import q_learning
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy, Policy, Transitions, concatenate
from tpd.envs import Environment
from tpd.policies.tabular import GreedyPolicy
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.run.parts import Parts, build
from tpd.run.training import Training
from tpd.sources.collection import collect, play
from tpd.sources.exploration import Exploration, TabularExplorer, draw


def collected(env: Environment, policy: Policy, *, steps: int, epsilon: float, num_envs: int) -> Transitions:
    rng, exploration = generator(0, "test"), Exploration(epsilon)
    return concatenate(
        list(collect(env, policy, rng, steps=steps, exploration=exploration, num_envs=num_envs))
    )


def test_learns_a_good_policy(fuel_taxi: Environment, paper: Parts) -> None:
    def mean_return() -> float:
        episodes = play(fuel_taxi, paper.trainer.policy, generator(0, "test"), episodes=2000)
        return float(episodes.transitions.reward.sum() / 2000)

    before = mean_return()
    paper.trainer.train()
    # the optimal policy earns about -6: many starts are too far from the station for their fuel
    assert before < -100
    assert mean_return() > -12


def test_never_takes_an_invalid_action(fuel_taxi: Environment) -> None:
    seen: list[Transitions] = []
    q_learning(fuel_taxi).train([seen.append])
    transitions = concatenate(seen)
    assert fuel_taxi.mask(transitions.observation)[np.arange(len(transitions)), transitions.action].all()


@pytest.mark.parametrize("stages", [1, 3])
def test_the_hook_shows_every_transition_once(stages: int) -> None:
    seen: list[Transitions] = []
    trainer = q_learning(small_mdp.environment(), steps=23_456, stages=stages)
    trainer.train([seen.append])
    assert sum(map(len, seen)) == 23_456


def test_stages_explore_as_one_training_does_each_in_its_own_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, seen, asked = q_learning(small_mdp.environment(), stages=4), list[Transitions](), list[int]()
    rate = trainer.epsilon

    def epsilon(step: int) -> float:
        asked.append(step)
        return rate(step)

    monkeypatch.setattr(trainer, "epsilon", epsilon)
    for stage in range(4):
        trainer.train([seen.append], stage=stage)
    assert [len(batch) for batch in seen] == [5_000] * 4
    assert asked == sorted(asked)
    assert (asked[0], asked[-1]) == (0, 20_000)
    assert (seen[0].next_observation != seen[1].next_observation).mean() > 0.3


def test_listening_does_not_change_what_is_learned() -> None:
    alone, watched = q_learning(small_mdp.environment()), q_learning(small_mdp.environment())
    alone.train()
    watched.train([lambda transitions: None])
    states = np.arange(small_mdp.NUM_STATES)
    np.testing.assert_array_equal(alone.policy.action_values(states), watched.policy.action_values(states))


def test_exploration_falls_linearly_then_stays() -> None:
    trainer = q_learning(small_mdp.environment(), steps=1000)
    assert [trainer.epsilon(step) for step in (0, 250, 500, 900)] == pytest.approx([1, 0.525, 0.05, 0.05])


@pytest.mark.parametrize(
    ("alongside", "steps", "expected"), [(True, 0, 20_000), (False, 5_000, 5_000), (True, 5_000, 25_000)]
)
def test_alongside_and_after_only_decide_when_the_learner_is_called(
    alongside: bool, steps: int, expected: int
) -> None:
    env = small_mdp.environment()
    trainer = q_learning(env)
    training = Training(
        alongside=alongside, steps=steps, epsilon=0.2, num_envs=10, least_tried=False, restarts=0.0
    )
    seen: list[Transitions] = []
    training.run(env, trainer, generator(0, "collection"), learning=[seen.append])
    assert sum(map(len, seen)) == training.transitions(trainer) == expected


@pytest.mark.parametrize("training", ["after", "alongside"])
def test_both_ways_of_training_explain_the_final_policy(training: str, compose_config: Compose) -> None:
    overrides = [
        f"training={training}",
        "explainer=polynomial",
        "policy.explained_epsilon=0.1",
        "explainer.horizon=10",
    ]
    steps = ["training.steps=300000", "policy.steps=300000"]
    parts = build(compose_config("env=frozen_lake", *overrides, *steps))
    learned, policy = parts.explainer, parts.trainer.policy
    assert isinstance(policy, DiscretePolicy)
    solution = ExactSolution(parts.env, policy, parts.outcomes, horizon=10)
    truth = Explainer(solution, policy, parts.outcomes.legend)
    rng = generator(0, "collection")
    parts.training.run(parts.env, parts.trainer, rng, learning=[learned.predictor.update])  # type: ignore[attr-defined]
    start = np.array([0])
    error = (learned.explain(start) - truth.explain(start)).expected
    assert np.abs(error).max() < 0.1
    assert truth.explain(start).expected[0, 5:].max() > 0.5


def test_collection_is_exact_in_number_and_repeats_with_its_seed() -> None:
    env, policy = small_mdp.environment(), small_mdp.policy()

    def again() -> Transitions:
        batches = collect(
            env, policy, generator(3, "test"), steps=1234, exploration=Exploration(0.3), num_envs=7
        )
        return concatenate(list(batches))

    first, second = again(), again()
    assert len(first) == 1234
    np.testing.assert_array_equal(first.next_observation, second.next_observation)


def test_exploration_takes_other_actions_as_often_as_asked() -> None:
    env, policy = small_mdp.environment(), small_mdp.policy(stochastic=False)
    batch = collected(env, policy, steps=30_000, epsilon=0.3, num_envs=50)
    other = batch.action != policy.action(batch.observation)
    assert other.mean() == pytest.approx(0.3 * 2 / 3, abs=0.01)


def test_a_time_limit_is_no_termination_and_no_step_crosses_it() -> None:
    """After a truncation comes a reset, which is not a transition of the old episode."""
    env = Environment("SmallMDP-v0", max_episode_steps=3)
    model = env.model
    assert model is not None
    batch = collected(env, small_mdp.policy(), steps=5_000, epsilon=1.0, num_envs=5)
    assert (batch.truncated & ~batch.terminated).sum() > 500
    possible = model.next_state[batch.observation, batch.action] == batch.next_observation[:, None]
    assert possible.any(axis=1).all()


def test_gymnasiums_own_vector_envs_serve_too() -> None:
    """The same frequencies from SyncVectorEnv as from the table; its info is kept where asked for."""
    env = small_mdp.environment()
    model = env.model
    assert model is not None
    wanted = {"steps": 40_000, "exploration": Exploration(0.0), "num_envs": 20, "info_keys": ["parity"]}
    batch = concatenate(list(collect(env, small_mdp.policy(), generator(0, "test"), **wanted)))  # type: ignore[arg-type]
    np.testing.assert_array_equal(batch.info["parity"], batch.next_observation % 2)
    pair = batch[(batch.observation == 0) & (batch.action == 0)]
    for b in range(3):
        hit = (pair.next_observation == model.next_state[0, 0, b]) & (
            pair.terminated == model.terminated[0, 0, b]
        )
        assert hit.mean() == pytest.approx(model.probability[0, 0, b], abs=0.04)


def test_outcomes_that_need_info_are_learned_alongside() -> None:
    env = small_mdp.environment()
    outcomes = OutcomeSet([event("odd", lambda t: t.info["parity"], info_keys=["parity"])])
    seen: list[Transitions] = []
    q_learning(env, steps=500).train([seen.append], outcomes.info_keys)
    assert (outcomes.observe(seen[0]).outcome[:, 0] == small_mdp.odd(seen[0])).all()


def test_info_that_the_env_does_not_have_is_named() -> None:
    batches = collect(
        small_mdp.environment(),
        small_mdp.policy(),
        generator(0, "test"),
        steps=5,
        exploration=Exploration(0.0),
        num_envs=2,
        info_keys=["speed"],
    )
    with pytest.raises(KeyError, match=r"no 'speed'; it has.*parity"):
        next(batches)


def test_episodes_are_whole_and_as_many_as_asked() -> None:
    episodes = play(small_mdp.environment(), small_mdp.policy(), generator(0, "test"), episodes=1003)
    assert len(episodes) == 1003
    for number in range(1003):
        steps = episodes[number]
        assert (steps.observation[1:] == steps.next_observation[:-1]).all()
        ends = steps.terminated | steps.truncated
        assert ends[-1]
        assert not ends[:-1].any()
    # the length of an episode is geometric, cut at 50; stopping early would favour short ones
    assert len(episodes.transitions) / 1003 == pytest.approx(1 / small_mdp.TERMINATION, rel=0.1)


def test_least_tried_actions_and_restarts_spread_the_visits() -> None:
    """At the same epsilon and number of steps, more of the valid pairs are tried ten times or more."""
    env = Environment("FuelTaxi-v0")
    valid = env.mask(np.arange(1050))
    policy = GreedyPolicy(np.zeros((1050, 7)), valid, 0.99)

    def well_tried(exploration: Exploration) -> int:
        batches = collect(
            env, policy, generator(0, "test"), steps=400_000, exploration=exploration, num_envs=500
        )
        code = np.concatenate([batch.observation * 7 + batch.action for batch in batches])
        return int((np.bincount(code, minlength=1050 * 7) >= 10).sum())

    plain = well_tried(Exploration(0.3))
    assert well_tried(Exploration(0.3, restarts=0.5)) > 1.1 * plain
    assert well_tried(Exploration(0.3, least_tried=True, restarts=0.5)) > 1.2 * plain


def test_the_explorer_keeps_to_valid_actions() -> None:
    env = Environment("FuelTaxi-v0")
    policy = GreedyPolicy(np.zeros((1050, 7)), env.mask(np.arange(1050)), 0.99)
    explorer = TabularExplorer(env, policy, Exploration(1.0, least_tried=True), generator(0, "test"))
    states = np.repeat(np.arange(1050), 20)
    for _ in range(3):
        actions = explorer(states)
        assert env.mask(states)[np.arange(len(states)), actions].all()


def test_restarts_need_an_env_that_can_be_put_into_a_state() -> None:
    spread = Training(alongside=False, steps=1, epsilon=0.1, num_envs=1, least_tried=True, restarts=0.5)
    spread.check(small_mdp.environment(), [])
    with pytest.raises(ValueError, match="SmallMDP-v0 cannot be restarted"):
        spread.check(small_mdp.environment(), ["parity"])


def test_draw_follows_its_probabilities_and_never_takes_the_impossible() -> None:
    rng = np.random.default_rng(0)
    probabilities = np.tile([0.0, 0.7, 0.3, 0.0], (100_000, 1))
    counts = np.bincount(draw(probabilities, rng), minlength=4) / 100_000
    np.testing.assert_allclose(counts, [0, 0.7, 0.3, 0], atol=0.01)
    assert counts[0] == counts[3] == 0


@pytest.mark.parametrize(
    ("setting", "value"), [("steps", -1), ("steps", 0.5), ("epsilon", 1.5), ("num_envs", 0), ("restarts", -1)]
)
def test_settings_that_cannot_be_are_refused(setting: str, value: float) -> None:
    usual = {
        "alongside": False,
        "steps": 10,
        "epsilon": 0.1,
        "num_envs": 2,
        "least_tried": False,
        "restarts": 0.0,
    }
    with pytest.raises(ValueError, match=setting):
        Training(**(usual | {setting: value}))  # type: ignore[arg-type]
