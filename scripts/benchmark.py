"""How fast tpd is: every figure a ratio measured within one run, so that the machine's moods cancel out.

python scripts/benchmark.py                       all of it, in a few minutes
python scripts/benchmark.py learning collecting   some of it
"""

import subprocess
import sys
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import gymnasium as gym
import numpy as np
from hydra import compose, initialize_config_dir
from matplotlib.figure import Figure

from tpd.cli import CONFIG_FOLDER
from tpd.envs import Environment
from tpd.evaluate import Errors
from tpd.experiment import Findings, Parts, build, judge, keep
from tpd.kernels import fhtd_update
from tpd.learners.replayed import Counts, ReplayedFHTD
from tpd.outcomes import OutcomeSet, event
from tpd.policies.tabular import TabularPolicy
from tpd.seeding import generator
from tpd.sources.collection import collect
from tpd.tracking.runs import MlflowTracking, NoRun
from tpd.types import DiscretePolicy, FloatArray, IntArray, Transitions, concatenate

STEPS, LOOP_STEPS = 5_000_000, 20_000
HORIZON, EVENTS, RATE = 30, 7, 0.1
SCRIPT = Path(__file__).with_name("run.py")
Figures = Iterator[tuple[str, float]]


class Benchmark(Protocol):
    """Yields figures and their values."""

    __name__: str

    def __call__(self) -> Figures: ...


def measure(benchmarks: Sequence[Benchmark], wanted: Sequence[str]) -> None:
    """Print and track the figures of the benchmarks wanted by name; of all, if none is named."""
    every = {benchmark.__name__: benchmark for benchmark in benchmarks}
    unknown = set(wanted) - set(every)
    if unknown:
        sys.exit(f"no benchmark {', '.join(unknown)}; there are {', '.join(every)}")
    tracking = MlflowTracking(uri="sqlite:///mlflow.db", experiment="benchmark")
    with tracking.open("benchmark", {"benchmarks": " ".join(wanted or every)}, {}) as tracked:
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


def probabilities(parts: Parts) -> FloatArray:
    """[state, action]: what the policy does."""
    policy = parts.trainer.policy
    assert isinstance(policy, DiscretePolicy)
    return policy.probabilities(np.arange(parts.env.table_shape()[0]))


def stream(parts: Parts, steps: int = STEPS) -> Iterator[Transitions]:
    rng, training = generator(0, "benchmark"), parts.training
    exploration, num_envs = training.exploration, training.num_envs
    policy = parts.trainer.policy
    return collect(parts.env, policy, rng, steps=steps, exploration=exploration, num_envs=num_envs)


def gather(parts: Parts, steps: int = STEPS) -> list[Transitions]:
    return list(stream(parts, steps))


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
    values: FloatArray, t: Transitions, outcome: FloatArray, alive: FloatArray, next_actions: IntArray
) -> None:
    """FHTD as one would write it first: a transition at a time, its horizons and events in NumPy."""
    for i in range(len(t)):
        row, next_row = values[t.observation[i], t.action[i]], values[t.next_observation[i], next_actions[i]]
        target = np.repeat(outcome[i][None], HORIZON, axis=0)
        target[1:] += alive[i] * next_row[:-1]
        row += RATE * (target - row)


def loop_cost(parts: Parts, batches: Sequence[Transitions]) -> float:
    """Seconds per transition of the loop above."""
    few = concatenate(batches[:5])[:LOOP_STEPS]
    outcomes = np.ascontiguousarray(parts.outcomes.observe(few).outcome[:, :EVENTS])
    values = np.zeros((*parts.env.table_shape(), HORIZON, EVENTS), np.float32)
    alive = (~few.terminated).astype(np.float32)
    next_actions = probabilities(parts).argmax(axis=1)[few.next_observation]
    return seconds(lambda: numpy_loop(values, few, outcomes, alive, next_actions), repeat=3) / len(few)


def learning() -> Figures:
    """Learning 5e6 transitions x 30 horizons x 7 events, against the loop above and a copy of memory."""
    parts = trained()
    batches = gather(parts)
    observed = [parts.outcomes.observe(batch) for batch in batches]
    outcomes = [np.ascontiguousarray(o.outcome[:, :EVENTS]) for o in observed]
    continuations = [np.ascontiguousarray(o.continuation[:, :EVENTS]) for o in observed]
    num_states, num_actions = parts.env.table_shape()
    policy = probabilities(parts)
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

    loop = loop_cost(parts, batches)
    compiled()
    ours = seconds(compiled, repeat=3) / STEPS
    yield "microseconds per transition", 1e6 * ours
    yield "times faster than a NumPy loop (at least 30)", loop / ours

    def learned() -> None:
        for batch in batches:
            parts.explainer.predictor.update(batch)  # type: ignore[attr-defined]

    yield "the same, observing and checking the outcomes too", loop / (seconds(learned, repeat=2) / STEPS)

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


def gymnasium_loop(parts: Parts, steps: int) -> None:
    """The same behaviour in `gymnasium.make`, a step at a time."""
    env, rng = gym.make("FuelTaxi-v0"), np.random.default_rng(0)
    best, epsilon = probabilities(parts).argmax(axis=1).tolist(), parts.training.exploration.epsilon
    states = np.arange(parts.env.table_shape()[0])
    valid = [np.flatnonzero(row).tolist() for row in parts.env.mask(states)]
    state, _ = env.reset(seed=0)
    for _ in range(steps):
        explores = rng.random() < epsilon
        action = valid[state][rng.integers(len(valid[state]))] if explores else best[state]
        state, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            state, _ = env.reset()


def collecting() -> Figures:
    """Collecting 5e6 transitions with the vector env, against single steps."""
    parts = trained()
    loop = seconds(lambda: gymnasium_loop(parts, LOOP_STEPS), repeat=3) / LOOP_STEPS
    gather(parts, 10_000)
    ours = seconds(lambda: deque(stream(parts), maxlen=1)) / STEPS
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


class Chain(gym.Env[Any, Any]):
    """As many states as are wanted, and two actions; only its spaces matter here."""

    def __init__(self, num_states: int) -> None:
        self.observation_space = gym.spaces.Discrete(num_states)
        self.action_space = gym.spaces.Discrete(2)


gym.register("Chain-v0", lambda **settings: Chain(**settings))


def bit_of_step(t: Transitions, bit: int) -> FloatArray:
    """Something that happens or not, as state, action and next state decide."""
    return np.asarray((t.observation + t.action + t.next_observation) >> bit % 4 & 1)


def replayed_cost(
    num_states: int = 1000, horizon: int = 30, width: int = 8, steps: int = 300_000
) -> tuple[float, float]:
    """Seconds and bytes of counting, solving and explaining on the same chain, by the default explainer."""
    t, _ = random_transitions(num_states, steps, width)
    outcomes = OutcomeSet([event(f"bit {k}", partial(bit_of_step, bit=k)) for k in range(width - 1)])
    policy = TabularPolicy(np.tile([1.0, 0.0], (num_states, 1)), discount=1.0)
    learner = ReplayedFHTD(
        Environment("Chain-v0", {"num_states": num_states}), policy, outcomes, horizon=horizon
    )

    def work() -> None:
        learner.update(t)
        learner.predict(t.observation[:1], t.action[:1])

    tracemalloc.start()
    took = seconds(work)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return took, float(peak)


def exponent(sizes: list[int], costs: list[float]) -> float:
    """The power with which the cost grows, fitted."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def growth() -> Figures:
    """Powers with which time and memory grow: 1 is linear."""
    grid = {
        "horizon": [15, 30, 60, 120, 240],
        "width": [4, 8, 16, 24],
        "num_states": [1_000, 10_000, 100_000, 1_000_000],
        "steps": [100_000, 1_000_000, 4_000_000],
    }
    for explainer, cost in (("FHTD", fhtd_cost), ("replayed", replayed_cost)):
        cost(steps=1000)
        for name, sizes in grid.items():
            enough = {"horizon": 10, "width": 3, "steps": 3_000_000} if name == "num_states" else {}
            costs = [cost(**(enough | {name: size})) for size in sizes]
            for what, column in (("time", 0), ("memory", 1)):
                power = exponent(sizes, [found[column] for found in costs])
                yield f"{explainer}: {what} against {name}, power (about 1)", power


# Whole runs


def empty_pages() -> None:
    """Pages of as many axes as those of a seed, which show nothing: what matplotlib takes by itself."""
    for columns in (2, 2, 4):
        figure = Figure(figsize=(5.5 * columns, 14), dpi=110)
        figure.subplots(4, columns)
        figure.savefig(BytesIO())


def one_seed() -> Figures:
    """Where the time of one seed of the paper's experiment goes, imports and compilation aside."""
    trained("policy.steps=2000")
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        parts = build(compose("config", ["experiment=paper"]))
    examiner, evaluation = parts.examiner, parts.evaluation
    assert examiner is not None
    curve, found = dict[int, Errors](), list[Findings]()
    learning = 0.0

    def collect_and_learn() -> None:
        nonlocal learning
        for batch in stream(parts):
            learning += seconds(partial(parts.explainer.predictor.update, batch))  # type: ignore[attr-defined]

    def draw_curve() -> None:
        for point in range(evaluation.curve_points):
            curve[point] = examiner.errors(evaluation.curve_episodes)

    spent = {
        "policy": seconds(parts.trainer.train),
        "collection": seconds(collect_and_learn) - learning,
        "learning": learning,
        "curve": seconds(draw_curve),
        "evaluation": seconds(lambda: found.append(judge(parts))),
    }
    (findings,) = found
    assert findings.errors is not None
    curve[STEPS] = findings.errors
    with TemporaryDirectory() as folder:
        untracked = seconds(lambda: keep(parts, findings, curve, Path(folder, "files"), NoRun()), repeat=2)
        tracking = MlflowTracking(uri=f"sqlite:///{folder}/mlflow.db", experiment="one_seed")
        with tracking.open("first", {}, {}) as first:  # makes the store, and imports what models need
            keep(parts, findings, curve, Path(folder, "first"), first)
        run = tracking.open("second", {}, {})

        def track() -> None:
            for step, errors in curve.items():
                run.metrics(errors.metrics(), step)
            keep(parts, findings, curve, Path(folder, "tracked"), run)
            run.end("FINISHED")

        spent |= {"plots and files": untracked, "tracking": seconds(track) - untracked}
    total = sum(spent.values())
    yield "seconds", total
    for phase, value in spent.items():
        yield f"share of {phase}", value / total
    unkept = total - spent["plots and files"] - spent["tracking"]
    yield "share of learning, were nothing drawn, written or tracked", learning / unkept
    yield "as many pages of empty axes, times learning", seconds(empty_pages, repeat=2) / learning


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
    measure((learning, collecting, explaining, growth, one_seed, ten_seeds, starting), sys.argv[1:])
