"""Laws over all of FuelTaxi's table, and that its environments follow it."""

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from stable_baselines3.common.env_checker import check_env as check_env_for_sb3

from tpd.core.seeding import generator
from tpd.core.types import IntArray
from tpd.envs import Environment
from tpd.envs.events import fuel_taxi as events
from tpd.envs.fuel_taxi.rules import (
    ACTION_NAMES,
    EVENT_NAMES,
    NUM_STATES,
    REWARDS,
    STATION,
    TERMINAL,
    Action,
    Event,
    decode,
    dynamics,
    encode,
)
from tpd.envs.tabular import TabularVectorEnv
from tpd.policies.tabular import TabularPolicy
from tpd.sources.stepping import Choice, interact


def test_states_are_numbered_without_gaps() -> None:
    assert [encode(*decode(s)) for s in range(NUM_STATES)] == list(range(1050))


def test_probabilities_of_every_pair_sum_to_one() -> None:
    table = dynamics().table
    for s, a in np.ndindex(NUM_STATES, len(Action)):
        assert sum(p for p, *_ in table[s][a]) == pytest.approx(1, abs=1e-12)


def test_fuel_rises_only_at_the_station() -> None:
    transitions, _ = dynamics().model.transitions()
    for before, after in zip(transitions.observation, transitions.next_observation, strict=True):
        if decode(after).fuel > decode(before).fuel:
            assert decode(before)[:2] == STATION


def test_every_transition_has_one_event_that_fixes_its_reward_and_ending() -> None:
    transitions, _ = dynamics().model.transitions()
    happened = np.stack([getattr(events, name)(transitions) for name in EVENT_NAMES])
    assert (happened.sum(axis=0) == 1).all()
    for event, reward in REWARDS.items():
        assert (transitions.reward[happened[event]] == reward).all()
        assert (transitions.terminated[happened[event]] == (event in TERMINAL)).all()


def test_events_read_from_transitions_are_those_of_the_rules() -> None:
    model, named = dynamics().model, dynamics().events
    transitions, _ = model.transitions()
    expected = named[np.nonzero(model.probability)]
    happened = np.stack([getattr(events, name)(transitions) for name in EVENT_NAMES])
    assert (np.argmax(happened, axis=0) == expected).all()


def test_masks_leave_out_exactly_the_invalid_actions() -> None:
    model, named = dynamics().model, dynamics().events
    invalid = named[:, :, 0] == Event.INVALID
    has_valid = ~invalid.all(axis=1)
    assert (model.mask[has_valid] == ~invalid[has_valid]).all()
    assert model.mask[~has_valid].all()


@pytest.mark.parametrize(
    ("state", "action", "expected"),
    [
        ((2, 0, 6, False), "south", [(0.9, (3, 0, 5, False), "move"), (0.1, (2, 0, 5, False), "traffic")]),
        ((2, 0, 1, False), "south", [(0.9, (3, 0, 0, False), "failure"), (0.1, (2, 0, 0, False), "failure")]),
        ((1, 0, 1, True), "north", [(0.9, (0, 0, 0, True), "move"), (0.1, (1, 0, 0, True), "failure")]),
        ((1, 0, 1, False), "north", [(0.9, (0, 0, 0, False), "failure"), (0.1, (1, 0, 0, False), "failure")]),
        ((0, 3, 1, False), "east", [(0.9, (0, 4, 0, False), "move"), (0.1, (0, 3, 0, False), "failure")]),
        ((0, 4, 0, False), "west", [(1.0, (0, 4, 0, False), "invalid")]),
        ((0, 4, 19, False), "refuel", [(1.0, (0, 4, 20, False), "refuel")]),
        ((0, 4, 20, False), "refuel", [(1.0, (0, 4, 20, False), "invalid")]),
        ((0, 1, 9, False), "east", [(1.0, (0, 1, 9, False), "invalid")]),
        ((4, 0, 9, False), "pickup", [(1.0, (4, 0, 9, True), "pickup")]),
        ((4, 0, 9, True), "pickup", [(1.0, (4, 0, 9, True), "invalid")]),
        ((0, 0, 0, True), "dropoff", [(1.0, (0, 0, 0, False), "dropoff")]),
        ((4, 0, 5, True), "dropoff", [(1.0, (4, 0, 5, True), "invalid")]),
    ],
)
def test_rules(
    state: tuple[int, int, int, bool],
    action: str,
    expected: list[tuple[float, tuple[int, int, int, bool], str]],
) -> None:
    s, a = encode(*state), ACTION_NAMES.index(action)
    found = [
        (p, tuple(decode(after)), EVENT_NAMES[dynamics().events[s, a, b]])
        for b, (p, after, _, _) in enumerate(dynamics().table[s][a])
    ]
    assert [entry[1:] for entry in found] == [entry[1:] for entry in expected]
    assert [entry[0] for entry in found] == pytest.approx([entry[0] for entry in expected])


def test_optimal_values_at_the_fuel_threshold() -> None:
    """At (2, 2) with fuel 9 refuelling and going are nearly tied; with fuel 10 going is far better."""
    model = dynamics().model
    v = np.zeros(NUM_STATES)
    for _ in range(500):
        q = (model.probability * (model.reward + 0.99 * v[model.next_state] * ~model.terminated)).sum(axis=2)
        v = np.where(model.mask, q, -np.inf).max(axis=1)
    nine, ten = encode(2, 2, 9, False), encode(2, 2, 10, False)
    assert q[nine, Action.EAST] == pytest.approx(2.02, abs=0.01)
    assert q[nine, Action.WEST] == pytest.approx(2.34, abs=0.01)
    assert q[ten, Action.WEST] > q[ten, Action.EAST] + 10


def test_passes_both_env_checkers() -> None:
    env = gym.make("FuelTaxi-v0", render_mode="rgb_array").unwrapped
    check_env(env)
    check_env_for_sb3(env)


def test_starts_everywhere_with_fuel_and_a_waiting_passenger() -> None:
    starts = np.flatnonzero(dynamics().model.start)
    assert len(starts) == 25 * 20
    assert all(decode(s).fuel >= 1 and not decode(s).passenger for s in starts.tolist())


def test_time_limit_truncates(fuel_taxi: Environment) -> None:
    env = fuel_taxi.make()
    env.reset(seed=0, options={"state": encode(2, 2, 20, False)})
    ends = [env.step(Action.PICKUP)[2:4] for _ in range(200)]
    assert ends[-1] == (False, True)
    assert not any(any(end) for end in ends[:-1])


def test_info_names_the_event_and_the_mask(fuel_taxi: Environment) -> None:
    env = fuel_taxi.make()
    _, info = env.reset(options={"state": encode(4, 0, 9, False)})
    assert info["action_mask"][Action.PICKUP] == 1
    _, reward, _, _, info = env.step(Action.PICKUP)
    assert (info["event"], reward) == ("pickup", 10)
    assert (env.unwrapped.action_masks() == info["action_mask"]).all()  # type: ignore[attr-defined]


def test_vector_env_follows_the_same_table(fuel_taxi: Environment) -> None:
    envs = fuel_taxi.make_vector(64, info_keys=["event"])
    rng = generator(0, "test")
    model = dynamics().model

    policy = TabularPolicy(np.full((NUM_STATES, len(Action)), 1 / len(Action)), 1.0)
    stream = interact(
        envs, policy, lambda states: Choice(policy.sample(states, rng)), seed=0, info_keys=["event"]
    )
    endings = 0
    for _ in range(300):
        _, t = next(stream)
        same = model.next_state[t.observation, t.action] == t.next_observation[:, None]
        same &= model.probability[t.observation, t.action] > 0
        assert same.any(axis=1).all()
        for name in EVENT_NAMES:
            assert (getattr(events, name)(t) == (t.info["event"] == name)).all()
        endings += int((t.terminated | t.truncated).sum())
    assert endings > 100


def test_vector_env_has_the_frequencies_of_the_table(fuel_taxi: Environment) -> None:
    envs = fuel_taxi.make_vector(20_000)
    start, _ = envs.reset(seed=1)
    counts = np.bincount(start, minlength=NUM_STATES)
    assert set(np.flatnonzero(counts)) == set(np.flatnonzero(dynamics().model.start))
    envs.unwrapped._state[:] = encode(2, 2, 9, False)  # type: ignore[attr-defined]
    after, *_ = envs.step(np.full(20_000, Action.WEST))
    stuck = np.mean(after == encode(2, 2, 8, False))
    assert stuck == pytest.approx(0.1, abs=0.01)


def test_rolling_many_steps_is_stepping(fuel_taxi: Environment) -> None:
    """Every copy goes on where it was, by the behaviour and the table, until its episode is over."""
    envs = TabularVectorEnv(dynamics().model, num_envs=3, max_episode_steps=7)
    envs.reset(seed=0)
    behaviour = np.zeros((NUM_STATES, len(Action)))
    behaviour[:, Action.SOUTH], behaviour[:, Action.EAST] = 0.25, 0.75
    rng, before, elapsed = generator(0, "test"), envs._state.copy(), np.zeros(3, dtype=int)
    counts, stuck, moved = np.zeros(len(Action)), 0, 0
    over = np.zeros(3, dtype=bool)
    for _ in range(4000):
        t = envs.roll(behaviour, 1, rng)
        assert (t.observation == before[~over]).all()
        elapsed = np.where(over, 0, elapsed + 1)
        assert (t.truncated == (elapsed[~over] == 7)).all()
        assert t.terminated.sum() == (events.dropoff(t) | events.failure(t)).sum()
        counts += np.bincount(t.action, minlength=len(Action))
        stuck, moved = stuck + int(events.traffic(t).sum()), moved + int(events.move(t).sum())
        before[~over] = t.next_observation
        before[over] = envs._state[over]
        ended = np.zeros(3, dtype=bool)
        ended[~over] = t.terminated | t.truncated
        over = ended
    assert counts[Action.EAST] / counts.sum() == pytest.approx(0.75, abs=0.02)
    assert stuck / (stuck + moved) == pytest.approx(0.1, abs=0.02)


def test_same_seed_same_episode(fuel_taxi: Environment) -> None:
    def episode() -> list[int]:
        env = fuel_taxi.make()
        state, info = env.reset(seed=5)
        env.action_space.seed(5)
        states = [state]
        for _ in range(50):
            state, *_ = env.step(env.action_space.sample(info["action_mask"]))
            states.append(state)
        return states

    assert episode() == episode()


def test_text_shows_what_a_person_needs(fuel_taxi: Environment) -> None:
    env = fuel_taxi.make(render_mode="ansi")
    env.reset(options={"state": encode(2, 0, 6, False)})
    picture = str(env.render())
    assert "fuel  6/20" in picture
    assert "passenger waiting" in picture
    assert [line[1] for line in picture.splitlines()[1:6]] == ["D", " ", "T", " ", "P"]
    assert "G" in picture


def test_picture_changes_with_every_part_of_the_state(fuel_taxi: Environment) -> None:
    def picture(row: int, col: int, fuel: int, passenger: bool) -> IntArray:
        pixels = fuel_taxi.picture(np.array(encode(row, col, fuel, passenger)))
        assert pixels is not None
        return pixels

    base = picture(2, 2, 9, False)
    assert base.dtype == np.uint8
    for other in ((1, 2, 9, False), (2, 3, 9, False), (2, 2, 8, False), (2, 2, 9, True)):
        assert not np.array_equal(base, picture(*other))


def test_unknown_state_is_refused_with_its_value(fuel_taxi: Environment) -> None:
    with pytest.raises(ValueError, match="fuel=21"):
        fuel_taxi.state({"row": 0, "col": 0, "fuel": 21, "passenger": False})
    with pytest.raises(ValueError, match="petrol"):
        fuel_taxi.state({"petrol": 3})
    with pytest.raises(ValueError, match="1050"):
        fuel_taxi.state(2000)
