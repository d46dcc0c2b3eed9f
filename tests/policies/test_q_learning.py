"""Q-learning: a good policy from valid actions, in stages, with whoever listens."""

import numpy as np
import pytest

from tests.support import small_mdp
from tests.support.q_learning import q_learning
from tpd.core.seeding import generator
from tpd.core.types import Transitions, concatenate
from tpd.envs import Environment
from tpd.run.parts import Parts
from tpd.sources.collection import play


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
