"""Foils that are more than one action: behaviours for some steps, and other policies for good."""

from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from stable_baselines3 import DQN

import tpd
from tests.support import crossing, small_mdp
from tpd.core.types import Array, FloatArray, IntArray
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.tabular_dynamics import TabularDynamics

HORIZON = 6
ALWAYS = np.eye(3)


def last_action(states: Array) -> IntArray:
    """Whatever the state."""
    return np.full(len(states), 2)


def explainer(policy: Any = None) -> tpd.Explainer:
    return tpd.Explainer(
        policy or small_mdp.policy(),
        env="SmallMDP-v0",
        events=small_mdp.outcomes(),
        horizon=HORIZON,
    )


def first_moment(asked: tpd.Explainer) -> tpd.Moment:
    return asked.play(seeds=[0])[0][0]


def exactly(state: int, steps: int | None) -> FloatArray:
    """[horizon, outcome]: the last action for so many steps, then the agent's own policy."""
    env, policy = small_mdp.environment(), small_mdp.policy()
    assert env.model is not None
    dynamics = TabularDynamics.known(env.model, small_mdp.outcomes())

    def choose(step: int, states: IntArray) -> FloatArray:
        if steps is None or step < steps:
            return np.tile(ALWAYS[2], (len(states), 1))
        return policy.probabilities(states)

    return dynamics.follow(state, 2, choose, HORIZON).expected[:, :-1]


@pytest.mark.parametrize("steps", [3, None])
def test_rollouts_of_a_behaviour_agree_with_the_exact_evaluation(steps: int | None) -> None:
    asked = explainer()
    moment = first_moment(asked)
    answer = asked.why(moment, action=0, foil=tpd.Behaviour(last_action, steps), rollouts=500)
    assert answer.foil is not None
    side = answer.foil.explanation
    truth, band = exactly(int(moment.observation), steps), side.band(0.9999)
    assert side.rollouts is not None
    assert ((band.low[0] <= truth) & (truth <= band.high[0])).all()
    other = exactly(int(moment.observation), 1)
    assert not ((band.low[0] <= other) & (other <= band.high[0])).all()  # the test can fail


@pytest.mark.parametrize("kind", ["exact", "replayed"])
def test_a_table_evaluates_a_behaviour_without_rollouts(kind: str) -> None:
    asked = explainer().learn(3000, overrides=[f"explainer={kind}", "evaluation=none"], progress=False)
    answers = [asked.why(4, action=0, foil=tpd.Behaviour(last_action, steps)) for steps in (1, 2, None)]
    for answer, steps in zip(answers, (1, 2, None), strict=True):
        assert answer.foil is not None
        side, truth = answer.foil.explanation, exactly(4, steps)
        if kind == "exact":
            np.testing.assert_allclose(side.expected[0], truth)
            assert answer.how.kind == "exact"
        else:
            assert answer.how.kind == "counted"
            assert answer.contrast is not None
            assert answer.contrast.drawn  # bands of the difference, from the same models
            band = side.band(0.999) if side.draws is None else side.band()
            assert ((band.low[0] - 0.05 <= truth) & (truth <= band.high[0] + 0.05)).all()
        once = asked.why(4, action=0, foil=2)
        assert once.foil is not None
        same = np.allclose(side.expected, once.foil.explanation.expected)
        assert same == (steps == 1)  # one step of it is another action, and nothing else


def test_a_behaviour_that_is_the_agents_own_makes_no_difference() -> None:
    for policy in (small_mdp.policy(), small_mdp.policy(stochastic=False)):
        asked = explainer(policy)
        moment = first_moment(asked)
        own = int(policy.action(moment.observation[None])[0])
        for steps in (2, None):
            answer = asked.why(moment, action=own, foil=tpd.Behaviour(policy, steps, "itself"), rollouts=60)
            assert answer.contrast is not None
            assert not answer.contrast.expected.any()
            assert answer.contrast.fact.rollouts is not None
            np.testing.assert_array_equal(answer.contrast.fact.rollouts, answer.contrast.foil.rollouts)
        other = asked.why(moment, action=own, foil=tpd.Behaviour(last_action), rollouts=60)
        assert other.contrast is not None
        assert other.contrast.expected.any()


def test_an_answer_names_the_behaviour_in_every_view() -> None:
    asked = explainer()
    answer = asked.why(first_moment(asked), action=0, foil=tpd.Behaviour(last_action, 3), rollouts=50)
    assert answer.compared == "action 0 against last action for 3 steps"
    assert "Last action for 3 steps instead: " in answer.text
    assert answer.table["difference"].abs().max() > 0
    texts = [text.get_text() for axes in answer.plot().axes for text in (axes.title, *axes.texts)]
    assert any("last action for 3 steps" in text for text in texts)
    frame = answer.to_frame()
    assert len(frame) == HORIZON * 3


def test_actions_may_be_listed_one_after_the_other() -> None:
    asked = explainer()
    moment = first_moment(asked)
    listed = asked.why(moment, action=0, foil=[2, 2, 2], rollouts=40)
    written = asked.why(moment, action=0, foil=tpd.Behaviour(last_action, 3), rollouts=40)
    assert listed.foil is not None
    assert written.foil is not None
    np.testing.assert_array_equal(listed.foil.explanation.rollouts, written.foil.explanation.rollouts)
    assert listed.foil.name == "action 2 3 times"
    mixed = asked.why(moment, foil=tpd.Behaviour([1, 1, 2]), rollouts=20)
    assert mixed.foil is not None
    assert mixed.foil.name == "action 1 2 times, then action 2"


def test_live_models_and_loaded_agents_are_behaviours_too(tmp_path: Any) -> None:
    model = DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu")
    model.save(tmp_path / "agent.zip")
    loaded = tpd.load_agent(tmp_path / "agent.zip", env="CartPole-v1")
    asked = tpd.Explainer(lambda o: o[:, 2] > 0, env="CartPole-v1", horizon=8)
    moment = asked.play(seeds=[4])[0][-6]
    answers = [asked.why(moment, foil=tpd.Behaviour(agent, name="DQN")) for agent in (model, loaded)]
    sides = [answer.foil for answer in answers if answer.foil is not None]
    np.testing.assert_array_equal(sides[0].explanation.expected, sides[1].explanation.expected)
    assert answers[0].compared.endswith(" against DQN")


def test_continuous_actions_have_behaviours() -> None:
    asked = tpd.Explainer(lambda o: -o[:, 1:2], env="Pendulum-v1", horizon=5)
    moment = asked.play(seeds=[0], steps=10)[0][3]

    def swing(observations: Array) -> FloatArray:
        return np.sign(observations[:, 2:3])

    assert asked.why(moment, foil=tpd.Behaviour(swing, steps=4)).compared.endswith("swing for 4 steps")
    with pytest.raises(ValueError, match=r"push: it chooses .*3.*, which is not valid"):
        asked.why(moment, foil=tpd.Behaviour(lambda o: np.full((len(o), 1), 3.0), name="push"))


class Masked(gym.Env[Any, Any]):
    """Action 2 is not valid once it was taken."""

    observation_space = gym.spaces.Box(0, 9, (1,))
    action_space = gym.spaces.Discrete(3)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self.taken = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: int) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.taken += action == 2
        return np.array([self.taken], np.float32), 0.0, False, False, {}


gym.register(id="MaskedBehaviour-v0", entry_point="tests.api.test_behaviour:Masked", max_episode_steps=9)


def test_actions_that_are_masked_are_refused_by_name() -> None:
    env = tpd.Environment(
        "MaskedBehaviour-v0", mask_function=lambda o: np.column_stack([o == o, o == o, o == 0])
    )
    asked = tpd.Explainer(lambda o: np.zeros(len(o), int), env=env, horizon=4)
    moment = asked.play(seeds=[0])[0][0]
    with pytest.raises(ValueError, match="last action for 2 steps: it chooses action 2, which is not valid"):
        asked.why(moment, foil=tpd.Behaviour(last_action, 2))
    assert asked.why(moment, foil=tpd.Behaviour(last_action, 1)).foil is not None
    once = tpd.Explainer(lambda o: np.where(o[:, 0] == 0, 2, 0), env=env, horizon=4)
    later = once.play(seeds=[0])[0][1]
    said = "is not a valid action here, by the environment's action mask"
    assert f"2 {said}" in once.why(later, foil=2).text
    assert said not in once.why(later, foil=1).text


def broken(observations: Array) -> IntArray:
    raise RuntimeError("no idea")


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda: tpd.Behaviour(lambda o: np.zeros((len(o), 2)), 2), "the other policy for 2 steps: .*shape"),
        (lambda: tpd.Behaviour(lambda o: np.full(len(o), 7)), "the other policy: .*action 7"),
        (lambda: tpd.Behaviour(broken, 1), "broken for 1 step: .*no idea"),
        (lambda: tpd.Behaviour(last_action, 0), "steps"),
        (lambda: tpd.Behaviour([], None), "expected a list of actions such as"),
        (lambda: tpd.Behaviour([0, 9]), "no action 9"),
        (lambda: tpd.Behaviour([0, 1], steps=2), "omit steps= for a list of actions"),
        (lambda: last_action, "tpd.Behaviour"),
    ],
)
def test_what_is_wrong_is_named(ask: Callable[[], Any], message: str) -> None:
    asked = explainer()
    with pytest.raises((ValueError, TypeError), match=message):
        asked.why(first_moment(asked), foil=ask(), rollouts=20)


@pytest.mark.slow
def test_learned_answers_say_that_a_behaviour_needs_the_simulator() -> None:
    quick = ["explainer=network", "explainer.fit_updates=5", "evaluation.seconds=1"]
    asked = tpd.Explainer(lambda o: o[:, 2] > 0, env="CartPole-v1", horizon=5).learn(
        500, overrides=quick, progress=False
    )
    with pytest.raises(ValueError, match="needs a simulator that can be forked or, for discrete states"):
        asked.why(np.zeros(4, np.float32), foil=[0, 0])


def test_waiting_for_the_storm_to_pass_changes_nothing() -> None:
    """At the pier waiting is harmless, so two waits are worth what none is, two steps later."""
    policy = TabularPolicy(crossing.sailor().probabilities(np.arange(12)), discount=1.0)
    asked = tpd.Explainer(policy, env="Crossing-v0", events=crossing.outcomes(), horizon=8)
    asked.learn(10, overrides=["explainer=exact", "evaluation=none"], progress=False)
    answer = asked.why(0, foil=[1, 1])
    assert answer.contrast is not None
    fact, foil = answer.contrast.fact.expected[0], answer.contrast.foil.expected[0]
    np.testing.assert_allclose(fact[:-2], foil[2:])
    assert answer.switch is not None
