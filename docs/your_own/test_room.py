"""Your test: the events match their names, and the terms add up to the reward."""

import numpy as np
import room
import room_agent
import room_events

import tpd


def test_events_and_reward():
    explainer = tpd.Explainer(
        room_agent.thermostat,
        env="Room-v0",
        events={"too cold": room_events.too_cold, "too hot": room_events.too_hot},
        horizon=10,
    )
    moment = explainer.play(seeds=[0])[0][5]
    answer = explainer.why(moment, action="wait", foil="heat", rollouts=50)
    assert answer.table.loc["first too cold", "fact"] >= answer.table.loc["first too cold", "foil"]


def test_terms_add_up_to_the_reward():
    env = room.Room()
    seen, _ = env.reset(seed=0)
    for action in (0, 1, 1, 0):
        after, reward, terminated, truncated, _ = env.step(action)
        step = tpd.Transitions(
            *(np.array([value]) for value in (seen, action, after, reward, terminated, truncated))
        )
        np.testing.assert_allclose(room_events.comfort(step) + room_events.energy(step), reward, atol=1e-6)
        seen = after
