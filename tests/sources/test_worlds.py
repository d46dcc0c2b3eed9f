"""Environments in forks of the process: they leave nothing behind, and say what went wrong."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from tpd.core.types import Array
from tpd.sources.worlds import ForkedWorlds, LocalWorlds, WorldError

ROWS = np.arange(3)


def cart_pole(seed: int) -> list[gym.Env[Any, Any]]:
    env = gym.make("CartPole-v1")
    env.reset(seed=seed)
    return [env]


def makers(count: int = 3) -> list[Callable[[], list[gym.Env[Any, Any]]]]:
    return [partial(cart_pole, seed) for seed in range(count)]


def open_files() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()


@pytest.fixture(autouse=True)
def leaves_nothing_behind() -> Any:
    files, processes = len(open_files()), children()
    yield
    assert len(open_files()) <= files  # fewer where something of another test is collected meanwhile
    assert children() == processes


def test_they_do_what_environments_here_do() -> None:
    here = LocalWorlds([make()[0] for make in makers()], watched=True)
    there = ForkedWorlds(makers(), [1, 1, 1], watched=True)
    for rows in (ROWS, ROWS[1:], ROWS[::2]):
        actions = np.ones(len(rows), dtype=np.int64)
        for one, other in zip(here.step(rows, actions), there.step(rows, actions), strict=True):
            np.testing.assert_array_equal(one[0], other[0])
            assert one[1:4] == other[1:4]
    np.testing.assert_array_equal(here.drew(), there.drew())
    here.close()
    there.close()


def test_a_fork_may_hold_several() -> None:
    shared = ForkedWorlds([lambda: cart_pole(0) + cart_pole(1), partial(cart_pole, 2)], [2, 1])
    alone = ForkedWorlds(makers(), [1, 1, 1])
    for one, other in zip(*(worlds.step(ROWS, np.zeros(3, int)) for worlds in (shared, alone)), strict=True):
        np.testing.assert_array_equal(one[0], other[0])
    shared.close()
    alone.close()


class Fails(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        raise ArithmeticError(f"no action {action} here")


def test_what_fails_in_a_fork_is_said() -> None:
    worlds = ForkedWorlds([lambda: [Fails(cart_pole(0)[0])]], [1])
    with pytest.raises(WorldError, match="ArithmeticError: no action 1 here"):
        worlds.step([0], np.array([1]))
    worlds.close()


class Hangs(gym.Wrapper[Any, Any, Any, Any]):
    def step(self, action: Any) -> Any:
        time.sleep(60)


@pytest.mark.parametrize("ending", ["killed", "hung"])
def test_a_fork_that_died_or_hangs_does_not_hang_the_parent(ending: str) -> None:
    worlds = ForkedWorlds([lambda: [Hangs(cart_pole(0)[0])]], [1], patience=0.3)
    if ending == "killed":
        os.kill(worlds._children[0][0], signal.SIGKILL)
    with pytest.raises(WorldError, match="died" if ending == "killed" else "more than 0.3 s"):
        worlds.step([0], np.array([1]))
    worlds.close()


def test_an_interruption_leaves_no_process_and_no_open_file() -> None:
    class Interrupted(list[Any]):
        def __iter__(self) -> Any:
            yield from makers()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ForkedWorlds(Interrupted(), [1, 1, 1])


def test_ctrl_c_does_not_reach_the_forks_and_they_end_with_their_parent(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import os, signal, time\n"
        "from tests.sources.test_worlds import ForkedWorlds, makers\n"
        "worlds = ForkedWorlds(makers(), [1, 1, 1])\n"
        "for pid, _ in worlds._children: os.kill(pid, signal.SIGINT)\n"
        "worlds.step([0, 1, 2], __import__('numpy').zeros(3, int))\n"
        "print(*(pid for pid, _ in worlds._children), flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}  # mobile-env installs a package `tests` of its own
    command = [sys.executable, str(script)]
    done = subprocess.run(command, env=os.environ | root, capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 3
    until = time.monotonic() + 20
    while any(running(pid) for pid in pids):
        assert time.monotonic() < until, "forks outlive their parent"
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")")[1][:3]
    except FileNotFoundError:
        return False


def test_actions_reach_the_rows_they_are_for() -> None:
    worlds = ForkedWorlds(makers(2), [1, 1])

    def speeds(actions: Array) -> list[float]:
        return [float(step[0][1]) for step in worlds.step([0, 1], actions)]

    left, right = speeds(np.array([0, 1]))
    assert left < 0 < right
    worlds.close()
