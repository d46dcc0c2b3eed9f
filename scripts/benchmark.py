"""How fast tpd is: every figure a ratio measured within one run, so that the machine's moods cancel out.

python scripts/benchmark.py                       all of it, in a few minutes
python scripts/benchmark.py learning collecting   some of it
"""

import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym
import numpy as np
from hydra import compose, initialize_config_dir

from tpd.cli import CONFIG_FOLDER
from tpd.evaluate import evaluate
from tpd.experiment import Parts, build, keep
from tpd.kernels import fhtd_update
from tpd.learners.replayed import Counts
from tpd.seeding import generator
from tpd.sources.collection import collect, play
from tpd.sources.exploration import mix, uniform
from tpd.tracking.runs import MlflowTracking
from tpd.types import FloatArray, Transitions, concatenate

STEPS, LOOP_STEPS = 5_000_000, 20_000
HORIZON, EVENTS, RATE = 30, 7, 0.1
SCRIPT = Path(__file__).with_name("run.py")
Figures = Iterator[tuple[str, float]]


def main(wanted: list[str]) -> None:
    every = {f.__name__: f for f in (learning, collecting, explaining, growth, one_seed, ten_seeds, starting)}
    unknown = set(wanted) - set(every)
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(every)}")
    tracking = MlflowTracking(uri="sqlite:///mlflow.db", experiment="benchmark")
    with tracking.open("benchmark", {"steps": STEPS}, {}) as tracked:
        for name in wanted or every:
            for figure, value in every[name]():
                print(f"{name:12s} {figure:52s} {value:10.4g}", flush=True)
                tracked.metrics({f"{name}/{figure}": value})
    print(f"to look at it: {tracking.ui_command()}")


def trained(*overrides: str) -> Parts:
    """The paper's experiment, its policy trained."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        parts = build(compose("config", ["experiment=paper", *overrides]))
    parts.trainer.train()
    return parts


def gather(parts: Parts, steps: int = STEPS) -> list[Transitions]:
    rng, training = generator(0, "benchmark"), parts.training
    exploration, num_envs = training.exploration, training.num_envs
    policy = parts.trainer.policy
    return list(collect(parts.env, policy, rng, steps=steps, exploration=exploration, num_envs=num_envs))


def seconds(work: Callable[[], object], repeat: int = 1) -> float:
    """The fastest of a few times."""
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


# Learning


def numpy_loop(
    values: FloatArray, t: Transitions, outcome: FloatArray, alive: FloatArray, policy: FloatArray
) -> None:
    """FHTD as one would write it first: a transition at a time, its horizons and events in NumPy."""
    for i in range(len(t)):
        s, a, s_next = t.observation[i], t.action[i], t.next_observation[i]
        v_next = np.tensordot(policy[s_next], values[s_next], axes=1)
        target = outcome[i] + alive[i] * np.vstack([np.zeros(EVENTS), v_next[:-1]])
        values[s, a] += RATE * (target - values[s, a])


def learning() -> Figures:
    """Learning 5e6 transitions x 30 horizons x 7 events, against the loop above and a copy of memory."""
    parts = trained()
    batches = gather(parts)
    observed = [parts.outcomes.observe(batch) for batch in batches]
    outcomes = [np.ascontiguousarray(o.outcome[:, :EVENTS]) for o in observed]
    continuations = [np.ascontiguousarray(o.continuation[:, :EVENTS]) for o in observed]
    num_states, num_actions = parts.env.table_shape()
    policy = parts.trainer.policy.probabilities(np.arange(num_states))
    values = np.zeros((num_states, num_actions, EVENTS, HORIZON), np.float32)
    visits = np.zeros((num_states, num_actions), np.int64)

    def compiled() -> None:
        for b, o, c in zip(batches, outcomes, continuations, strict=True):
            fhtd_update(
                values,
                visits,
                b.observation,
                b.action,
                b.next_observation,
                o,
                c,
                policy,
                RATE,
                0.0,
                1.0,
                True,
            )

    few = concatenate(batches[:5])[:LOOP_STEPS]
    slow = np.zeros((num_states, num_actions, HORIZON, EVENTS), np.float32)
    few_outcomes = np.concatenate(outcomes[:5])[:LOOP_STEPS]
    alive = (~few.terminated).astype(np.float32)
    loop = seconds(lambda: numpy_loop(slow, few, few_outcomes, alive, policy)) / len(few)
    compiled()
    ours = seconds(compiled, repeat=3) / STEPS
    yield "microseconds per transition", 1e6 * ours
    yield "times faster than a NumPy loop (at least 30)", loop / ours

    other = np.ones_like(values)

    def copies() -> None:
        for _ in range(500):
            np.copyto(other, values)

    copy = seconds(copies, repeat=3) / 500
    row = values[0, 0].nbytes  # read and written for (s, a), read for (s', a')
    yield (
        "share of the bytes per second of a copy (at least 0.4)",
        (3 * row / ours) / (2 * values.nbytes / copy),
    )

    def counted() -> None:
        counts = Counts(EVENTS)
        for b, o, c in zip(batches, outcomes, continuations, strict=True):
            counts.add(b.observation * num_actions + b.action, b.next_observation, o, c)

    counted()
    yield "counting for replay, share of the FHTD pass", seconds(counted, repeat=3) / STEPS / ours


# Collecting


def gymnasium_loop(parts: Parts, behaviour: FloatArray, steps: int) -> None:
    """The same behaviour in `gymnasium.make`, a step at a time."""
    env, rng = gym.make("FuelTaxi-v0"), np.random.default_rng(0)
    state, _ = env.reset(seed=0)
    for _ in range(steps):
        action = rng.choice(behaviour.shape[1], p=behaviour[state])
        state, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            state, _ = env.reset()


def collecting() -> Figures:
    """Collecting 5e6 transitions with the vector env, against single steps."""
    parts = trained()
    states = np.arange(parts.env.table_shape()[0])
    behaviour = mix(parts.trainer.policy.probabilities(states), uniform(parts.env.mask(states)), 0.2)
    loop = seconds(lambda: gymnasium_loop(parts, behaviour, LOOP_STEPS)) / LOOP_STEPS
    gather(parts, 10_000)
    ours = seconds(lambda: gather(parts)) / STEPS
    yield "microseconds per transition", 1e6 * ours
    yield "times faster than gymnasium.make in a loop (at least 30)", loop / ours


# Explaining


def explaining() -> Figures:
    """An explanation of one pair, and of ten thousand at once."""
    for name in ("paper", "replayed"):
        parts = trained(f"explainer={name}", "policy.steps=100000")
        for batch in gather(parts, 1_000_000):
            parts.explainer.predictor.update(batch)  # type: ignore[attr-defined]
        rng = np.random.default_rng(0)
        for count in (1, 10_000):
            states, actions = rng.integers(1050, size=count), rng.integers(7, size=count)
            parts.explainer.explain(states, actions)
            took = seconds(partial(parts.explainer.explain, states, actions), repeat=5)
            yield f"{name}: microseconds per pair, {count} at once", 1e6 * took / count


# Growth


def random_transitions(num_states: int, steps: int, width: int) -> tuple[Transitions, FloatArray]:
    rng = np.random.default_rng(0)
    states = rng.integers(num_states, size=steps)
    arrived = (states + rng.integers(1, 4, size=steps)) % num_states
    ends = rng.random(steps) < 0.05
    t = Transitions(
        states, rng.integers(2, size=steps), arrived, np.zeros(steps), ends, np.zeros(steps, bool)
    )
    return t, rng.integers(2, size=(steps, width)).astype(np.float32)


def fhtd_cost(
    num_states: int = 1000, horizon: int = 30, width: int = 8, steps: int = 300_000
) -> tuple[float, float]:
    """Seconds and bytes of learning on a random chain with two actions."""
    t, outcome = random_transitions(num_states, steps, width)
    continuation = np.repeat((~t.terminated).astype(np.float32)[:, None], width, axis=1)
    policy = np.tile([1.0, 0.0], (num_states, 1))
    tracemalloc.start()
    values = np.zeros((num_states, 2, width, horizon), np.float32)
    visits = np.zeros((num_states, 2), np.int64)
    values += 0  # touch every page before the clock starts
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    arguments = (
        t.observation,
        t.action,
        t.next_observation,
        outcome,
        continuation,
        policy,
        RATE,
        0.0,
        1.0,
        True,
    )
    return seconds(lambda: fhtd_update(values, visits, *arguments), repeat=2), float(peak)


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The power with which the cost grows, fitted."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def growth() -> Figures:
    """Powers with which time and memory grow: 1 is linear."""
    fhtd_cost(steps=1000)
    grid = {
        "horizon": [15, 30, 60, 120, 240],
        "width": [4, 8, 16, 32, 64],
        "num_states": [1_000, 10_000, 100_000, 1_000_000],
        "steps": [100_000, 1_000_000, 4_000_000],
    }
    for name, sizes in grid.items():
        small = {"horizon": 10, "width": 3} if name == "num_states" else {}
        costs = [fhtd_cost(**(small | {name: size})) for size in sizes]
        yield f"time against {name}, power (at most about 1)", exponent(sizes, [c[0] for c in costs])
        yield f"memory against {name}, power (at most about 1)", exponent(sizes, [c[1] for c in costs])


# Whole runs


def one_seed() -> Figures:
    """Where the time of one seed of the paper's experiment goes, imports and compilation aside."""
    trained("policy.steps=2000")
    spent: dict[str, float] = {}

    def clock(phase: str, work: Callable[[], object]) -> None:
        spent[phase] = spent.get(phase, 0.0) + seconds(work)

    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        parts = build(compose("config", ["experiment=paper"]))
    assert parts.truth is not None
    batches: list[Transitions] = []
    clock("policy", parts.trainer.train)
    clock("collection", lambda: batches.extend(gather(parts)))
    clock("learning", lambda: [parts.explainer.predictor.update(b) for b in batches])  # type: ignore[attr-defined]
    clock("truth", lambda: parts.truth.explain(np.array([0])))  # type: ignore[union-attr]

    def judged(episodes: int) -> None:
        met = play(parts.env, parts.trainer.policy, generator(0, "evaluation"), episodes=episodes)
        evaluate(parts.explainer, parts.truth, parts.env, met)  # type: ignore[arg-type]

    clock("evaluation", lambda: judged(parts.evaluation.episodes))
    for _ in range(parts.evaluation.curve_points):
        clock("evaluation", lambda: judged(parts.evaluation.curve_episodes))
    with TemporaryDirectory() as folder:
        drawn = Path(folder)
        for scene in parts.scenes:
            clock("plots", lambda s=scene: s.draw(parts.explainer, parts.env, "").savefig(drawn / s.name))  # type: ignore[misc]
        tracking = MlflowTracking(uri=f"sqlite:///{folder}/mlflow.db", experiment="one_seed")
        tracking.open("first", {}, {}).end("FINISHED")
        run = tracking.open("second", {}, {})
        clock("tracking", lambda: keep_without_plots(parts, drawn, run))
        run.end("FINISHED")
    total = sum(spent.values())
    yield "seconds", total
    for phase, value in spent.items():
        yield f"share of {phase}", value / total


def keep_without_plots(parts: Parts, folder: Path, run: object) -> None:
    keep(replace(parts, scenes=()), None, {}, folder, run)  # type: ignore[arg-type]


def ten_seeds() -> Figures:
    """Ten seeds as a sweep on all cores, against one seed alone, as a user runs them."""
    with TemporaryDirectory() as folder:
        command = [sys.executable, str(SCRIPT)]
        quiet = {"cwd": folder, "check": True, "capture_output": True}
        one = seconds(lambda: subprocess.run([*command, "experiment=paper", "seed=0"], **quiet))  # type: ignore[call-overload]
        ten = seconds(lambda: subprocess.run([*command, "-m", "experiment=paper", "seed=range(10)"], **quiet))  # type: ignore[call-overload]
    yield "seconds of one seed", one
    yield "times one seed (at most 6 on two cores)", ten / one


def starting() -> Figures:
    """`--help`, against importing nothing but Hydra."""
    bare = seconds(lambda: subprocess.run([sys.executable, "-c", "import hydra"], check=True), repeat=3)
    command = [sys.executable, str(SCRIPT), "--help"]
    ours = seconds(lambda: subprocess.run(command, check=True, capture_output=True), repeat=3)
    yield "seconds of --help", ours
    yield "times importing Hydra alone", ours / bare


if __name__ == "__main__":
    main(sys.argv[1:])
