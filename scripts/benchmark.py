"""Measure the speed of tpd. Results are ratios within one run, so that the load of the machine cancels out.

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
import psutil
from hydra import compose, initialize_config_dir
from matplotlib.figure import Figure

from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.outcomes import OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import (
    DiscretePolicy,
    FloatArray,
    IntArray,
    Trainer,
    Transitions,
    TransitionsHandler,
    concatenate,
)
from tpd.envs import Environment
from tpd.envs.dataset import DatasetDescription
from tpd.evaluation.errors import Errors
from tpd.kernels.learning import fhtd_update
from tpd.policies.function import GivenFunction
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.replayed.counts import Counts
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.replayed.posterior import CountedTable
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.experiment import judge
from tpd.run.parts import Parts, build
from tpd.run.results import Findings, save_results
from tpd.run.training import Training
from tpd.show.progress import ProgressBars
from tpd.sources.collection import collect
from tpd.sources.parquet import COLUMNS, read_shard, shard_path, write_shard
from tpd.tracking.mlflow_runs import MlflowTracking
from tpd.tracking.outbox import open_run
from tpd.tracking.runs import Run

STEPS, LOOP_STEPS = 5_000_000, 20_000
HORIZON, EVENTS, RATE = 30, 7, 0.1
SCRIPT = Path(__file__).with_name("run.py")
Figures = Iterator[tuple[str, float]]


class Benchmark(Protocol):
    """Yields names and values of figures."""

    __name__: str

    def __call__(self) -> Figures: ...


def measure(benchmarks: Sequence[Benchmark], wanted: Sequence[str]) -> None:
    """Run the benchmarks with these names (default: all); print and track their figures."""
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
    """The paper's experiment with a trained policy."""
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        parts = build(compose("config", ["experiment=paper", *overrides]))
    parts.trainer.train()
    return parts


def probabilities(parts: Parts) -> FloatArray:
    """[state, action]: the action probabilities of the policy."""
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
    """The shortest of several times."""
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
    """A straightforward FHTD loop: one transition at a time, horizons and events vectorised in NumPy."""
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
    """Learn 5e6 transitions x 30 horizons x 7 events.

    Compared with the loop above and with copying memory.
    """
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

    # interleaved, so that both see the same machine load
    turns = [(seconds(compiled) / STEPS, seconds(copies) / 500) for _ in range(7)]
    ours, copy = np.min(turns, axis=0)
    moved = 3 * values[0, 0].nbytes  # read and written for (s, a), read for (s', a')
    moved += 3 * batches[0].action.itemsize + policy[0].nbytes
    moved += outcomes[0][0].nbytes + continuations[0][0].nbytes
    yield (
        "share of the bytes per second of a copy (at least 0.4)",
        (moved / ours) / (2 * values.nbytes / copy),
    )

    def counted() -> None:
        counts = Counts(EVENTS)
        for b, o, c in zip(batches, outcomes, continuations, strict=True):
            counts.add(b.observation * num_actions + b.action, b.next_observation, o, c)

    counted()
    yield "counting for replay, share of the FHTD pass", seconds(counted, repeat=3) / STEPS / ours


# Collecting


def gymnasium_loop(parts: Parts, steps: int) -> None:
    """The same behaviour in `gymnasium.make`, one step at a time."""
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
    """Collect 5e6 transitions with the vector environment; compared with single steps."""
    parts = trained()
    loop = seconds(lambda: gymnasium_loop(parts, LOOP_STEPS), repeat=3) / LOOP_STEPS
    gather(parts, 10_000)
    ours = seconds(lambda: deque(stream(parts), maxlen=1)) / STEPS
    yield "microseconds per transition", 1e6 * ours
    yield "times faster than gymnasium.make in a loop (at least 30)", loop / ours


# Sharding


def sharding() -> Figures:
    """Collect two shards with one process and with two, and measure the cost of a dataset.

    A table is cheap to step and to learn from; an environment with physics is expensive to step.
    """
    parts, rng = trained("explainer=replayed", "policy.steps=100000"), generator(0, "benchmark")
    agent = GivenFunction(parts.env, rng, function=parts.trainer.policy.action, discount=0.99)
    learner = parts.explainer.predictor
    assert isinstance(learner, ReplayedFHTD)
    yield from by_two("FuelTaxi, counted", parts.env, agent, 4 * STEPS, lambda: learner.empty().update)
    lander = Environment("LunarLander-v3")
    idle = GivenFunction(
        lander, rng, function=lambda observations: np.zeros(len(observations)), discount=0.99
    )
    yield from by_two("LunarLander, saved", lander, idle, 2 * LOOP_STEPS, lambda: lambda batch: None)
    yield from dataset_cost(parts)


def by_two(
    what: str, env: Environment, agent: Trainer, steps: int, learner: Callable[[], TransitionsHandler]
) -> Figures:
    """Two processes against one, without the time to start them."""

    def learn(steps: int, processes: int) -> None:
        training = Training(
            alongside=False,
            steps=steps,
            epsilon=0.1,
            num_envs=64,
            least_tried=False,
            restarts=0.0,
            shards=2,
            processes=processes,
        )
        for stage in training.stages(env, agent, generator(0, "benchmark"), learning=[learner()]):
            stage()

    learn(2_000, 2)
    # interleaved, so that both see the same machine load, and repeated, so that both get a quiet moment
    times, works = [], []
    for _ in range(5):
        begin = work_done()
        alone = seconds(partial(learn, steps, 1))
        between = work_done()
        times.append((alone, seconds(partial(learn, steps, 2))))
        works.append((between - begin, work_done() - between))
    one, two = map(min, zip(*times, strict=True))
    yield f"{what}: microseconds per transition, 1 process", 1e6 * one / steps
    yield f"{what}: times faster with 2 processes (2 at most)", one / two
    little, more = map(min, zip(*works, strict=True))
    yield f"{what}: CPU seconds of 2 processes, times those of 1", more / little


def work_done() -> float:
    """CPU seconds of this process and its children, which do not depend on other load."""
    this = psutil.Process()
    spent = [process.cpu_times() for process in (this, *this.children(recursive=True))]
    return float(sum(times.user + times.system for times in spent))


def dataset_cost(parts: Parts) -> Figures:
    """Write and read a dataset of 5e6 transitions; megabytes are those of the arrays in memory."""
    env, batches = parts.env, gather(parts)
    description = DatasetDescription(env.id, env.observation_space, env.action_space, (), (), 1, {})
    columns = [getattr(batch, name) for batch in batches for name in COLUMNS]
    megabytes = sum(column.nbytes for column in columns) / 1e6
    with TemporaryDirectory() as folder:
        path = shard_path(Path(folder), 0)
        writing = seconds(lambda: deque(write_shard(path, batches), maxlen=0), repeat=3)
        reading = seconds(lambda: deque(read_shard(path, description), maxlen=0), repeat=3)
        stored = path.stat().st_size
    yield "dataset: bytes per transition in memory", 1e6 * megabytes / STEPS
    yield "dataset: bytes per transition on disk", stored / STEPS
    yield "dataset: MB per second written", megabytes / writing
    yield "dataset: MB per second read", megabytes / reading
    collecting = seconds(lambda: deque(stream(parts), maxlen=1), repeat=3)
    yield "dataset: writing, share of collecting", writing / collecting
    yield "dataset: reading, share of collecting", reading / collecting


# Explaining


def explaining() -> Figures:
    """Explain one pair, and ten thousand pairs in one batch."""
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


def banding() -> Figures:
    """The cost of bands, for callers with and without them."""
    parts = trained("explainer=replayed", "policy.steps=100000")
    explainer, predictor = parts.explainer, parts.explainer.predictor
    assert isinstance(predictor, ReplayedFHTD)
    policy = predictor.policy
    for batch in gather(parts):
        predictor.update(batch)
    table = predictor.table()
    assert isinstance(table, CountedTable)
    states, actions = np.divmod(table.pairs, table.num_actions)

    def answered() -> None:
        """The calls that an explanation without bands makes."""
        for ask in (table.predict, table.support, table.unknown):
            ask(states, actions)
        policy.probabilities(states)
        policy.action_values(states)

    bare = seconds(answered, repeat=9)
    explained = seconds(partial(explainer.explain, states, actions), repeat=9)
    yield "explaining all pairs without bands, times the bare answers", explained / bare
    took = seconds(lambda: explainer.explain(states, actions, draws=ENOUGH_DRAWS).band(), repeat=3)
    yield "bands of all pairs, seconds (below 1)", took
    yield "the same, times explaining without bands", took / explained


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
    values += 0  # touch every page before timing starts
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
    """A chain with any number of states and two actions; only its spaces matter here."""

    def __init__(self, num_states: int) -> None:
        self.observation_space = gym.spaces.Discrete(num_states)
        self.action_space = gym.spaces.Discrete(2)


gym.register("Chain-v0", lambda **settings: Chain(**settings))


def bit_of_step(t: Transitions, bit: int) -> FloatArray:
    """A binary event, determined by state, action and next state."""
    return np.asarray((t.observation + t.action + t.next_observation) >> bit % 4 & 1)


def replayed_cost(
    num_states: int = 1000, horizon: int = 30, width: int = 8, steps: int = 300_000
) -> tuple[float, float]:
    """Seconds and bytes of counting, solving and explaining on the same chain, with the default explainer."""
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
    """The fitted exponent with which the cost grows."""
    return float(np.polyfit(np.log(sizes), np.log(costs), 1)[0])


def growth() -> Figures:
    """Exponents with which time and memory grow; 1 is linear."""
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


class Timed:
    """A run that measures how long its calls block the caller."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            result = getattr(self._run, name)(*arguments)
            self.seconds += time.perf_counter() - began
            return result

        return call


def empty_pages() -> None:
    """Empty pages with the size and axes of a seed's pages: the time that matplotlib itself takes."""
    for columns, size in ((2, (11.2, 16.5)), (2, (11.2, 16.5)), (4, (12.8, 10.2))):
        figure = Figure(figsize=size, dpi=110)
        figure.subplots(4, columns)
        figure.savefig(BytesIO())


def one_seed() -> Figures:
    """Time of each part of one seed of the paper's experiment, without imports, compilation and overview."""
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
        "evaluation": seconds(lambda: found.append(judge(parts, ProgressBars(False)))),
    }
    (findings,) = found
    assert findings.errors is not None
    curve[STEPS] = findings.errors
    with TemporaryDirectory() as folder:
        tracking = MlflowTracking(uri=f"sqlite:///{folder}/mlflow.db", experiment="one_seed")
        for run in ("first", "second"):  # the first run creates the store, and imports what models need
            tracked: Any = Timed(open_run(tracking, Path(folder, run), run, {}, {}))
            began = time.perf_counter()
            for step, errors in curve.items():
                tracked.metrics(errors.metrics(), step)
            recording = parts.recorder.record(parts.env, parts.trainer.policy, parts.outcomes)
            save_results(parts, findings, curve, recording, Path(folder, run), tracked)
            tracked.end("FINISHED")
            spent["plots and files"] = time.perf_counter() - began - tracked.seconds
            spent["tracking (at most 0.1)"] = tracked.seconds
    total = sum(spent.values())
    yield "seconds", total
    for phase, value in spent.items():
        yield f"share of {phase}", value / total
    yield "share of what is not learning (at most 0.5)", 1 - learning / total
    unkept = total - spent["plots and files"] - tracked.seconds
    yield "share of learning, were nothing drawn, written or tracked", learning / unkept
    # a lower bound: empty pages, and collecting the transitions
    least = seconds(empty_pages, repeat=3) + spent["collection"]
    yield "empty pages and collection alone, times learning", least / learning


def ten_seeds() -> Figures:
    """Ten seeds as a sweep on all cores against a single seed, both without overviews."""
    with TemporaryDirectory() as folder:
        command, words = [sys.executable, str(SCRIPT)], ["experiment=paper", "overview=false"]
        quiet = {"cwd": folder, "check": True, "capture_output": True}
        one = seconds(lambda: subprocess.run([*command, *words, "seed=0"], **quiet))  # type: ignore[call-overload]
        ten = seconds(lambda: subprocess.run([*command, "-m", *words, "seed=range(10)"], **quiet))  # type: ignore[call-overload]
    yield "seconds of one seed", one
    yield "times one seed (at most 6 on two cores)", ten / one


def starting() -> Figures:
    """Time of `--help`, against importing only Hydra."""
    bare = seconds(lambda: subprocess.run([sys.executable, "-c", "import hydra"], check=True), repeat=3)
    command = [sys.executable, str(SCRIPT), "--help"]
    ours = seconds(lambda: subprocess.run(command, check=True, capture_output=True), repeat=3)
    yield "seconds of --help", ours
    yield "times importing Hydra alone", ours / bare


if __name__ == "__main__":
    measure(
        (learning, collecting, sharding, explaining, banding, growth, one_seed, ten_seeds, starting),
        sys.argv[1:],
    )
