"""Episodes recorded to be looked at."""

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tpd.core.outcomes import OutcomeSet, event, reward
from tpd.core.types import Array
from tpd.envs import Environment
from tpd.envs.events import fuel_taxi as events
from tpd.policies.function import FunctionPolicy
from tpd.policies.tabular import TabularPolicy
from tpd.sources import episodes, named_states
from tpd.sources.episodes import EARLY_FRAMES, LAST_FRAMES, Recorder, Recording, picture_times
from tpd.store import recordings
from tpd.store.recordings import RECORDED, load_recording, save_recording

CART_POLE = Environment("CartPole-v1")


def recorded(count: int = 3, steps: int | None = None, limit: int | None = 12) -> Recording:
    env = Environment("CartPole-v1", max_episode_steps=limit)
    policy = FunctionPolicy(
        lambda observations: (observations[:, 2] > 0).astype(int), 0.99, CART_POLE.action_space
    )
    outcomes = OutcomeSet([event("right", lambda t: t.action == 1)])
    recording = Recorder(episodes=count, steps=steps).record(env, policy, outcomes)
    assert recording is not None
    return recording


def test_episodes_start_from_their_own_seeds_and_go_on_step_by_step() -> None:
    recording = recorded()
    assert len(recording.episodes) == 3
    for number in range(3):
        t = recording.episodes[number]
        assert 0 < len(t) <= 12
        np.testing.assert_array_equal(t.observation[0], CART_POLE.make().reset(seed=number)[0])
        np.testing.assert_array_equal(t.observation[1:], t.next_observation[:-1])
        assert not (t.terminated | t.truncated)[:-1].any()
    np.testing.assert_array_equal(recording.happened[:, 0], recording.episodes.transitions.action)


def test_short_episodes_have_a_picture_of_every_step() -> None:
    recording = recorded(1, limit=4)
    assert len(recording.frames) == 4
    first, last = (np.asarray(Image.open(io.BytesIO(recording.frames[i]))) for i in (0, -1))
    assert first.shape[2] == 3
    assert (first != last).any()


@pytest.mark.parametrize(("works", "count", "frames"), [(1, 2, 0), (3, 1, 3), (4, 2, 0)])
def test_a_renderer_that_fails_later_costs_the_pictures_from_there_on(
    works: int, count: int, frames: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Episodes of four steps: whoever lacks its first picture would be shown with those of another."""
    drawn = 0

    def draw(env: object) -> Array:
        nonlocal drawn
        drawn += 1
        if drawn > works:
            raise RuntimeError("GL context lost")
        return np.zeros((8, 8, 3), dtype=np.uint8)

    monkeypatch.setattr(episodes, "draw", draw)
    recording = recorded(count, limit=4)
    assert len(recording.frames) == frames
    assert len(recording.episodes.transitions) == 4 * count
    assert "GL context lost" in caplog.text


@pytest.mark.parametrize("steps", [1, 29, 30, 130, 131, 5000])
def test_long_episodes_have_some_pictures_of_their_steps_and_all_of_the_last(steps: int) -> None:
    times = np.array(picture_times(steps))
    assert len(times) <= EARLY_FRAMES + LAST_FRAMES
    assert times[0] == 0
    np.testing.assert_array_equal(times[-LAST_FRAMES:], np.arange(steps)[-LAST_FRAMES:])
    assert np.diff(times, append=steps).max() <= -(-steps // EARLY_FRAMES)


def test_episodes_are_recorded_whole_unless_nothing_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    pole = recorded(2, limit=None)  # a limit is registered
    assert (np.diff(pole.episodes.begins, append=len(pole.episodes.transitions)) > 12).all()
    ends = pole.episodes.begins[1:] - 1
    assert (pole.episodes.transitions.terminated | pole.episodes.transitions.truncated)[ends].all()
    monkeypatch.setattr(episodes, "ENDLESS", 30)
    endless = Environment("Pendulum-v1", max_episode_steps=-1)  # gymnasium's way to say none
    assert endless.time_limit is None
    still = FunctionPolicy(lambda o: np.zeros((len(o), 1), np.float32), 0.99, endless.action_space)
    for steps, recorded_steps in ((None, 30), (7, 7)):
        cut = Recorder(episodes=1, steps=steps).record(endless, still, OutcomeSet([reward(-20, 0)]))
        assert cut is not None
        assert len(cut.episodes.transitions) == recorded_steps


def test_every_step_is_a_moment_to_which_seed_and_actions_lead() -> None:
    recording = recorded()
    moment = recording.moment(2, 5)
    env = CART_POLE.make()
    seen, _ = env.reset(seed=moment.seed)
    for action in moment.actions:
        seen, *_ = env.step(action)
    assert moment.shows(env.observation_space, seen)
    assert not recording.moment(2, 6).shows(env.observation_space, seen)
    np.testing.assert_array_equal(moment.mask, [True, True])
    assert len(moment.actions) == 5


def test_tables_draw_their_states_themselves(fuel_taxi: Environment) -> None:
    policy = TabularPolicy(np.eye(7)[np.zeros(1050, dtype=int)], 0.99)
    outcomes = OutcomeSet([event("move", events.move)])
    recording = Recorder(episodes=2, steps=5).record(fuel_taxi, policy, outcomes)
    assert recording is not None
    assert recording.frames == ()
    assert Recorder(episodes=0, steps=5).record(fuel_taxi, policy, outcomes) is None


def test_a_recording_survives_the_disk(tmp_path: Path) -> None:
    recording = recorded()
    save_recording(recording, tmp_path / "episodes.npz")
    again = load_recording(tmp_path / "episodes.npz")
    assert again.frames == recording.frames
    np.testing.assert_array_equal(again.frame_rows, recording.frame_rows)
    np.testing.assert_array_equal(again.episodes.begins, recording.episodes.begins)
    before, after = recording.moment(1, 4), again.moment(1, 4)
    assert before.seed == after.seed
    for name in ("actions", "observation", "mask"):
        np.testing.assert_array_equal(getattr(before, name), getattr(after, name))
    np.testing.assert_array_equal(again.happened, recording.happened)
    for name in RECORDED:
        np.testing.assert_array_equal(
            getattr(again.episodes.transitions, name), getattr(recording.episodes.transitions, name)
        )


def test_a_moment_is_a_step_of_a_recorded_episode() -> None:
    policy = FunctionPolicy(
        lambda observations: (observations[:, 2] > 0).astype(int), 0.99, CART_POLE.action_space
    )
    found = named_states.find(CART_POLE, policy, {"episode": 2, "step": 7})
    np.testing.assert_array_equal(found.observation[0], recorded().episodes[2].observation[7])


@pytest.mark.parametrize("wrong", [{"episodes": -1, "steps": 5}, {"episodes": 1, "steps": 0}])
def test_nonsense_is_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="or more"):
        Recorder(**wrong)


def test_a_recording_has_no_more_pictures_than_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save_recording(recorded(2, limit=3), tmp_path / "episodes.npz")
    monkeypatch.setattr(recordings, "LAST_FRAMES", 2)
    monkeypatch.setattr(recordings, "EARLY_FRAMES", 0)
    with pytest.raises(ValueError, match=r"episodes.npz: 6 pictures of 2 episodes, at most 4"):
        load_recording(tmp_path / "episodes.npz")
    monkeypatch.setattr(episodes, "MOST_PICTURED", 1)
    assert recorded(2, limit=3).frames == ()
    assert "2 episodes are recorded without pictures" in caplog.text
