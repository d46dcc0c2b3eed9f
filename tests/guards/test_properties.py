"""Bad input of any kind: one line that names the culprit, or a defined answer, and never a wrong number."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
from hydra import compose, initialize_config_dir
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from omegaconf import DictConfig, OmegaConf
from stable_baselines3 import A2C, DQN
from stable_baselines3.common.base_class import BaseAlgorithm

from sb3_ext.agents import TrainedAgent
from tests.support import good_files
from tests.support.good_files import POLE, explained, lake
from tpd.core.outcomes import Outcome, OutcomeError, OutcomeSet, event
from tpd.core.seeding import generator
from tpd.core.types import Array, Learner, Transitions
from tpd.envs import Environment
from tpd.envs.events.default import default_outcomes
from tpd.envs.tabular import TabularModel
from tpd.guards import settings as checks
from tpd.policies.tabular import TabularPolicy
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.predictors.step_sizes import constant
from tpd.predictors.tabular import TabularFHTD
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import ConfigError, build
from tpd.sources.collection import collect
from tpd.sources.episodes import Recorder
from tpd.sources.exploration import Exploration
from tpd.sources.stepping import StepError
from tpd.store import explainers, run_descriptions, saved_runs
from tpd.store.explanations import load_explanation
from tpd.store.recordings import load_recording
from tpd.store.run_descriptions import RUN
from tpd.tracking.served_requests import questions
from tpd.tracking.served_values import RequestError

few = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
many = settings(few, max_examples=100)

NUM_STATES, NUM_ACTIONS, HORIZON = 16, 4, 5
LARGEST_LINE = 1000
FAR = 1e4
"""Of a pole, where nobody ever was."""
FINITE = st.floats(-(2.0**60), 2.0**60, width=32)

anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**30), 10**30),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(-2, 2), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=1),
)
kinds = st.sampled_from(["int64", "int8", "uint8", "float64", "float32", "bool", "<U2"])
numbers = st.one_of(
    hnp.arrays(kinds, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4)),
    hnp.arrays("int64", st.integers(0, 3), elements=st.integers(-1, 16)),
    hnp.arrays("int64", st.just(2), elements=st.integers(0, 3)),
)
batches = numbers.filter(lambda array: array.ndim == 1)


def one_line(error: BaseException, *culprits: str) -> None:
    """Assert that an error is one line which names the culprit."""
    said = str(error)
    assert said.strip()
    assert "\n" not in said
    assert len(said) < LARGEST_LINE
    assert any(culprit in said for culprit in culprits), said


# Settings


@many
@given(value=anything)
def test_a_setting_is_what_it_says_or_is_refused_by_name(value: Any) -> None:
    def check(read: Callable[[], Any], right: Callable[[Any], bool]) -> None:
        try:
            found = read()
        except ValueError as error:
            one_line(error, "steps")
        else:
            assert right(found)
            assert found == value

    check(lambda: checks.whole_number("steps", value, 1), lambda found: type(found) is int and found >= 1)
    check(lambda: checks.number("steps", value, 0, 1), lambda found: type(found) is float and 0 <= found <= 1)
    check(lambda: checks.boolean("steps", value), lambda found: type(found) is bool)
    check(lambda: checks.one_of("steps", value, ("efo", "fhgvf")), lambda found: found in ("efo", "fhgvf"))


SETTINGS = (
    "seed",
    "explainer.horizon",
    "training.steps",
    "training.epsilon",
    "training.num_envs",
    "training.restarts",
    "training.least_tried",
    "training.alongside",
    "policy.discount",
    "policy.steps",
    "policy.learning_rate",
    "env.id",
    "env.max_episode_steps",
    "env.action_names",
    "recording.episodes",
    "evaluation.episodes",
    "outcomes.partition",
    "outcomes.first",
)


@pytest.fixture(scope="module")
def config() -> DictConfig:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        chosen = ["env=frozen_lake", "outcomes=frozen_lake", "explainer=replayed", "tracking=none"]
        return compose("config", overrides=chosen)


@settings(few, max_examples=40)
@given(key=st.sampled_from(SETTINGS), value=anything)
def test_a_config_is_built_or_refused_by_its_group(config: DictConfig, key: str, value: Any) -> None:
    changed = config.copy()
    OmegaConf.update(changed, key, value, merge=False, force_add=True)
    try:
        build(changed)
    except ConfigError as error:
        one_line(error, *{key.split(".")[0], "env", "outcomes", "policy", "explainer", "training"})


# Observations and actions


@many
@given(observations=batches, actions=st.one_of(st.none(), batches))
def test_pairs_are_explained_or_refused(observations: Array, actions: Array | None) -> None:
    explainer = explained()
    try:
        found = explainer.explain(observations, actions)
    except (ValueError, TypeError) as error:
        one_line(error, "states", "actions", "observations")
        return
    assert np.isin(observations, np.arange(NUM_STATES)).all()
    assert np.isin(found.actions, np.arange(NUM_ACTIONS)).all()
    assert found.expected.shape == (len(observations), HORIZON, NUM_ACTIONS + 1)
    assert np.isfinite(found.expected).all()
    assert ((found.expected[:, :, :NUM_ACTIONS] >= 0) & (found.expected[:, :, :NUM_ACTIONS] <= 1)).all()
    assert (found.expected[~found.known] == 0).all()


def test_what_was_never_seen_has_no_support_and_no_return() -> None:
    learner = _learner(ReplayedFHTD, horizon=2)
    explainer = Explainer(learner, learner.policy, learner.outcomes.legend)
    found = explainer.explain(np.arange(NUM_STATES))
    assert not found.known.any()
    assert (found.unknown == 1).all()
    assert np.isnan(explainer.action_returns(np.arange(NUM_STATES))).all()


@pytest.fixture(scope="module")
def network() -> Explainer:
    """A tiny network that has learned a little."""
    env = Environment(POLE)
    policy = good_files.going_left(env)
    learner = good_files.small_network(env, policy)
    for batch in collect(env, policy, generator(0, "a"), steps=60, exploration=Exploration(0.5), num_envs=2):
        learner.update(batch)
    return Explainer(learner, policy, learner.outcomes.legend)


@few
@given(
    observations=hnp.arrays("float32", st.tuples(st.integers(0, 3), st.just(4)), elements=FINITE),
    action=st.integers(-3, 4),
)
def test_a_network_expects_probabilities_or_refuses_the_action(
    network: Explainer, observations: Array, action: int
) -> None:
    actions = np.full(len(observations), action)
    try:
        found = network.explain(observations, actions)
    except ValueError as error:
        one_line(error, "actions")
        assert len(observations)
        assert action not in (0, 1)
        return
    assert action in (0, 1) or not len(observations)
    events = found.expected[:, :, :2]
    assert ((events >= 0) & (events <= 1)).all()
    assert np.isfinite(found.expected).all()
    far = (np.abs(observations) > FAR).any(axis=1)
    assert not found.known[far].any()


@few
@given(
    column=st.sampled_from(["observation", "next_observation", "reward"]),
    value=st.sampled_from([np.nan, np.inf, -np.inf]),
    row=st.integers(0, 3),
)
def test_a_network_learns_nothing_from_what_is_not_finite(
    network: Explainer, column: str, value: float, row: int
) -> None:
    good = Transitions(
        np.zeros((4, 4), np.float32),
        np.zeros(4, np.int64),
        np.ones((4, 4), np.float32),
        np.ones(4),
        np.zeros(4, np.bool_),
        np.zeros(4, np.bool_),
    )
    getattr(good, column)[row] = value
    before = network.explain(good.next_observation[row ^ 1 : (row ^ 1) + 1], np.array([0])).expected
    assert isinstance(network.predictor, Learner)
    with pytest.raises(OutcomeError) as caught:
        network.predictor.update(good)
    one_line(caught.value, f"the {column} is not finite")
    after = network.explain(good.next_observation[row ^ 1 : (row ^ 1) + 1], np.array([0])).expected
    np.testing.assert_array_equal(after, before)


# Transitions


def _learner(kind: Any, horizon: Any = HORIZON) -> Any:
    policy = TabularPolicy(np.full((NUM_STATES, NUM_ACTIONS), 1 / NUM_ACTIONS), 0.9)
    more: dict[str, Any] = {}
    if kind is TabularFHTD:
        more = {"form": "efo", "discount": 0.9, "step_size": constant(0.1), "dtype": "float64"}
    return kind(lake(), policy, default_outcomes(lake()), horizon=horizon, **more)


def _transition(**changed: Any) -> Transitions:
    """One step to the right in the first row, with some of it changed."""
    columns: dict[str, Any] = {"observation": 0, "action": 2, "next_observation": 1, "reward": 0.0}
    columns |= {"terminated": False, "truncated": False, **changed}
    return Transitions(**{name: np.array([value]) for name, value in columns.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [TabularFHTD, ReplayedFHTD])
@many
@given(
    column=st.sampled_from(["observation", "action", "next_observation"]),
    value=st.one_of(st.integers(-(2**40), 2**40), st.integers(-2, 20), st.floats(), st.booleans()),
)
def test_a_table_learns_from_what_it_has_and_refuses_the_rest(kind: Any, column: str, value: Any) -> None:
    learner = _learner(kind)
    learner.update(_transition())
    before = learner.table()
    count = NUM_ACTIONS if column == "action" else NUM_STATES
    try:
        learner.update(_transition(**{column: value}))
    except ValueError as error:
        one_line(error, column.replace("_", " "), column)
        assert type(value) is not int or not 0 <= value < count
        after = learner.table()
        np.testing.assert_array_equal(after.pairs, before.pairs)
        np.testing.assert_array_equal(after.expected, before.expected)
        np.testing.assert_array_equal(after.visits, before.visits)
    else:
        assert type(value) is int
        assert 0 <= value < count
        assert learner.table().visits.sum() == 2


@pytest.mark.parametrize("kind", [TabularFHTD, ReplayedFHTD])
def test_nothing_is_learned_from_nothing(kind: Any) -> None:
    learner = _learner(kind)
    learner.update(_transition()[:0])
    assert len(learner.table().pairs) == 0
    explainer = Explainer(learner, learner.policy, learner.outcomes.legend)
    assert len(explainer.explain(np.empty(0, dtype=np.int64))) == 0


@pytest.mark.parametrize("kind", [TabularFHTD, ReplayedFHTD])
@given(horizon=anything)
@many
def test_horizons_are_whole_and_at_least_one(kind: Any, horizon: Any) -> None:
    if isinstance(horizon, int | float) and horizon > 1000:
        return  # refused by the memory that it takes
    try:
        learner = _learner(kind, horizon)
    except ValueError as error:
        one_line(error, "horizon")
    else:
        learner.update(_transition())
        assert learner.predict(np.array([0]), np.array([2])).shape[1] == horizon >= 1


@pytest.mark.parametrize("kind", [TabularFHTD, ReplayedFHTD])
def test_one_step_ahead_is_the_step_itself(kind: Any) -> None:
    learner = _learner(kind, horizon=1)
    for _ in range(300):
        learner.update(_transition())
    expected = learner.predict(np.array([0]), np.array([2]))
    np.testing.assert_allclose(expected[0, 0], [0, 0, 1, 0, 0, 0], atol=1e-9)


@many
@given(reward=st.floats())
def test_rewards_are_finite_and_accounted_for(reward: float) -> None:
    outcomes = OutcomeSet([event("a step", lambda t: np.ones(len(t)), 1.0)], accounts_for_reward=True)
    try:
        outcomes.observe(_transition(reward=reward))
    except OutcomeError as error:
        one_line(error, "reward")
        assert reward != 1
    else:
        assert reward == pytest.approx(1, rel=1e-4)


@many
@given(values=numbers)
def test_outcomes_are_numbers_within_their_bounds(values: Array) -> None:
    outcome = Outcome("speed", lambda t: values, -1.0, 2.0)
    try:
        found = outcome.values(_transition())
    except OutcomeError as error:
        one_line(error, "'speed'")
        assert values.shape != (1,) or values.dtype.kind == "U" or not (-1 <= values.astype(float)[0] <= 2)
    else:
        assert -1 <= found[0] == np.float32(values[0]) <= 2


@few
@given(
    kind=st.sampled_from([KeyError, RuntimeError, AttributeError, ZeroDivisionError]),
    message=st.text(max_size=40),
)
def test_an_outcome_that_raises_is_named(kind: type[Exception], message: str) -> None:
    def broken(t: Transitions) -> Array:
        raise kind(message)

    with pytest.raises(OutcomeError) as caught:
        OutcomeSet([event("crash", broken)]).observe(_transition())
    one_line(caught.value, "'crash'")
    assert kind.__name__ in str(caught.value)


# Environments

WRONG: dict[str, Callable[[], tuple[Any, Any]]] = {
    "an observation of another shape": lambda: (np.zeros(3, np.float32), 0.0),
    "a single number": lambda: (np.float32(0), 0.0),
    "words": lambda: (np.array(["a", "b"]), 0.0),
    "an observation that is no number": lambda: (np.array([0, np.nan], np.float32), 0.0),
    "an infinite observation": lambda: (np.array([np.inf, 0], np.float32), 0.0),
    "a reward that is no number": lambda: (np.zeros(2, np.float32), np.nan),
    "an infinite reward": lambda: (np.zeros(2, np.float32), -np.inf),
    "a reward that is a word": lambda: (np.zeros(2, np.float32), "much"),
    "an error": lambda: ([][0], 0.0),
}


class Unreliable(gym.Env[Any, Any]):
    """Observes two numbers, until it gives something wrong."""

    def __init__(self, wrong: str, after: int, render_mode: str | None = None) -> None:
        self.observation_space = gym.spaces.Box(-np.inf, np.inf, (2,))
        self.action_space = gym.spaces.Discrete(2)
        self.wrong, self.after, self.time = wrong, after, 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.time += 1
        if self.time == self.after:
            return (*WRONG[self.wrong](), False, False, {})
        return np.full(2, self.time, np.float32), 0.0, False, False, {}


gym.register(id="Unreliable-v0", entry_point="tests.guards.test_properties:Unreliable", max_episode_steps=8)


@pytest.mark.filterwarnings("ignore::UserWarning")
@settings(few, max_examples=30)
@given(wrong=st.sampled_from(sorted(WRONG)), after=st.integers(1, 6), recorded=st.booleans())
def test_what_an_environment_gets_wrong_is_told_at_once(wrong: str, after: int, recorded: bool) -> None:
    env = Environment("Unreliable-v0", {"wrong": wrong, "after": after, "disable_env_checker": True})
    policy = good_files.going_left(env)

    def look() -> object:
        if recorded:
            return Recorder(episodes=1, steps=8).record(env, policy, default_outcomes(env))
        rng = generator(0, "a")
        return list(collect(env, policy, rng, steps=30, exploration=Exploration(0.0), num_envs=2))

    with pytest.raises(ValueError, match=r"observation|reward|observe") as caught:
        look()
    one_line(caught.value, "observation", "reward", "observe")


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("wrong", sorted(WRONG))
@pytest.mark.parametrize("algorithm", [DQN, A2C])
def test_no_agent_is_trained_on_what_an_environment_gets_wrong(
    wrong: str, algorithm: type[BaseAlgorithm]
) -> None:
    env = Environment("Unreliable-v0", {"wrong": wrong, "after": 5, "disable_env_checker": True})
    agent = TrainedAgent(
        env,
        generator(0, "a"),
        algorithm=partial(algorithm, "MlpPolicy"),
        steps=50,
        num_envs=2,
        deterministic=True,
        stages=1,
    )
    with pytest.raises(
        StepError, match=r"^Unreliable-v0 with observations in Box.* failed in reset or step: "
    ) as caught:
        agent.train()
    one_line(caught.value, "Unreliable-v0")


@many
@given(
    probability=st.floats(-1, 2),
    next_state=st.integers(-2, 3),
    reward=st.floats(),
)
def test_a_table_of_dynamics_is_one_or_is_refused(probability: float, next_state: int, reward: float) -> None:
    good = {0: [(1.0, 1, 0.0, True)]}
    table = {0: {0: [(probability, next_state, reward, False), (1 - probability, 0, 0.0, False)]}, 1: good}
    try:
        model = TabularModel.from_table(table, np.array([1.0, 0.0]))
    except ValueError as error:
        one_line(error, "state 0, action 0")
        assert not (0 <= probability <= 1 and 0 <= next_state < 2 and np.isfinite(reward))
    else:
        np.testing.assert_allclose(model.probability.sum(axis=2), 1)
        assert np.isfinite(model.reward).all()


# Files


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    good_files.run(folder)
    good_files.explanation(folder)
    good_files.recording(folder)
    return folder


READERS: dict[str, Callable[[Path], Any]] = {
    f"{saved_runs.EXPLAINER}/{explainers.ARRAYS}": lambda folder: explainers.load(
        folder / saved_runs.EXPLAINER
    ),
    f"{saved_runs.EXPLAINER}/{explainers.DESCRIPTION}": lambda folder: explainers.load(
        folder / saved_runs.EXPLAINER
    ),
    "explanation.npz": lambda folder: load_explanation(folder / "explanation.npz"),
    saved_runs.EPISODES: lambda folder: load_recording(folder / saved_runs.EPISODES),
    f"{saved_runs.EXPLAINER}/{RUN}": lambda folder: run_descriptions.read(folder / saved_runs.EXPLAINER),
}


@settings(few, max_examples=150)
@given(
    file=st.sampled_from(sorted(READERS)),
    place=st.floats(0, 1, exclude_max=True),
    content=st.binary(min_size=1, max_size=4),
)
def test_a_damaged_file_is_refused_in_one_line_or_says_the_same(
    files: Path, file: str, place: float, content: bytes
) -> None:
    path = files / file
    whole = path.read_bytes()
    at = int(place * len(whole))
    path.write_bytes(whole[:at] + content + whole[at + len(content) :])
    try:
        found = READERS[file](files)
        if isinstance(found, Explainer):
            assert np.isfinite(found.explain(np.arange(NUM_STATES)).expected).all()
    except (ValueError, OSError) as error:
        one_line(error, Path(file).name, "states")
    finally:
        path.write_bytes(whole)


# Questions


@many
@given(
    rows=st.lists(st.tuples(*[st.one_of(anything, st.integers(-2, 20))] * 3), max_size=4),
    columns=st.permutations(["state", "action", "foil"]),
)
def test_questions_are_read_or_refused_by_row_and_column(
    files: Path, rows: list[tuple[Any, ...]], columns: list[str]
) -> None:
    asked = questions(files / saved_runs.EXPLAINER)
    assert asked is not None
    try:
        found = asked.read(pd.DataFrame(rows, columns=columns, dtype=object))
    except RequestError as error:
        one_line(error, "row")
    else:
        assert np.isin(found.states, np.arange(NUM_STATES)).all()
        assert np.isin(found.actions, np.arange(NUM_ACTIONS)).all()
        assert np.isin(found.foils, np.arange(NUM_ACTIONS)).all()
        assert len(found.states) == len(rows)


@few
@given(plain=st.recursive(anything, lambda inner: st.dictionaries(st.text(max_size=8), inner, max_size=3)))
def test_any_description_is_refused_in_one_line(files: Path, plain: Any) -> None:
    path = files / saved_runs.EXPLAINER / explainers.DESCRIPTION
    whole = path.read_bytes()
    described = {**json.loads(whole), "network": plain} if isinstance(plain, dict) else plain
    path.write_text(json.dumps(described))
    try:
        with pytest.raises(ValueError, match=explainers.DESCRIPTION) as caught:
            explainers.load(files / saved_runs.EXPLAINER)
        one_line(caught.value, explainers.DESCRIPTION)
    finally:
        path.write_bytes(whole)
