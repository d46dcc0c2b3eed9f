"""Every config composes and instantiates, and a wrong one is refused by name before any work."""

from inspect import signature
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hydra.utils import get_object, instantiate
from omegaconf import OmegaConf
from stable_baselines3 import DQN, PPO

from tests.support import Compose
from tests.support.learning import train
from tpd.core.seeding import generator
from tpd.core.types import Array
from tpd.envs import Environment
from tpd.policies.function import GivenFunction
from tpd.run.configs import CONFIG_FOLDER, EXTRAS, SettingError, check, composed
from tpd.run.parts import ConfigError, build
from tpd.run.training import Training


class Unsaveable:
    """A predictor with nothing to save."""

    tie = 0.0

    def __init__(self, *parts: object, **settings: object) -> None:
        self.horizon = 1


def still(observations: Array) -> Array:
    """A policy that always does the same."""
    return np.zeros(len(observations), dtype=np.int64)


class Telegraph(gym.Env[Any, Any]):
    """Actions that are no numbers."""

    observation_space = gym.spaces.Box(-1, 1, (2,))
    action_space = gym.spaces.Text(5)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode


gym.register(id="Telegraph-v0", entry_point="tests.run.test_configs:Telegraph")


OPTIONS = sorted(
    f"{path.parent.name}={path.stem}"
    for path in CONFIG_FOLDER.glob("*/*.yaml")
    if path.parent.name != "hydra" and path.stem != "tune_network"  # needs an extra: tests/run/test_tuning.py
)
# environments that no table can hold
UNNUMBERED = ("acrobot", "bipedal_walker", "cart_pole", "hopper", "lunar_lander", "mountain_car", "pendulum")
FUNCTION = "policy.function={_target_: policies_of_a_user.left, _partial_: true}"
MODEL = "policy.model={_target_: stable_baselines3.PPO, policy: MlpPolicy, env: FuelTaxi-v0, device: cpu}"
NO_TABLES = ["policy=function", FUNCTION, "explainer=network", "training=agent", "evaluation=forecasts"]
CART_POLE = ["env=cart_pole", *NO_TABLES]
# what else must be chosen, for the option to fit
PARTNERS: dict[str, list[str]] = {
    # an outcome set fits its own environment only
    "outcomes=frozen_lake": ["env=frozen_lake"],
    "outcomes=cliff_walking": ["env=cliff_walking"],
    "outcomes=taxi": ["env=taxi"],
    **{f"outcomes={name}": [f"env={name}", *NO_TABLES] for name in (*UNNUMBERED, "door_key")},
    **{f"env={name}": NO_TABLES for name in (*UNNUMBERED, "door_key")},
    **{option: ["experiment=radio"] for option in ("env=radio", "outcomes=radio")},
    "policy=function": [FUNCTION],
    "policy=sb3_model": [MODEL],
    **{
        f"explainer={name}": [option for option in CART_POLE if option != "explainer=network"]
        for name in ("auto", "model", "most_likely_model")
    },
    # what reads a dataset goes with what knows its folder
    "policy=dataset": ["training=dataset"],
    "env=dataset": ["experiment=dataset"],
    "env=agent": ["env.id=CartPole-v1", "outcomes=cart_pole", *NO_TABLES],
    "experiment=agent": ["env.id=FuelTaxi-v0"],
    "training=buffer": [option for option in CART_POLE if option != "training=agent"],
}
# agents are explained from their zip
ENV_OF_AGENT = {
    "policy=sb3_zip": "fuel_taxi",
    "experiment=agent": "fuel_taxi",
    **{f"experiment={name}": name for name in UNNUMBERED},
}


@pytest.fixture
def agent(tmp_path: Path, compose_config: Compose) -> Any:
    """Saves an agent of an environment, untrained; the override that names its file."""

    def saved(env: str) -> str:
        environment: Environment = instantiate(compose_config(f"env={env}").env)
        PPO("MlpPolicy", environment.make(), device="cpu").save(tmp_path / "agent.zip")
        return f"policy.path={tmp_path / 'agent.zip'}"

    return saved


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A short dataset; the override that names its folder."""
    rng, folder = generator(0, "test"), tmp_path_factory.mktemp("datasets") / "dataset"
    fuel_taxi = Environment("FuelTaxi-v0")
    agent = GivenFunction(fuel_taxi, rng, function=still, discount=0.99)
    settings = {"alongside": False, "epsilon": 1.0, "num_envs": 5, "least_tried": False, "restarts": 0.0}
    source = Training(**settings, steps=100, save_dataset=str(folder))  # type: ignore[arg-type]
    train(source, fuel_taxi, agent, rng, learning=[])
    return f"training.path={folder}"


def test_there_is_a_config_for_every_group() -> None:
    groups = {option.split("=")[0] for option in OPTIONS}
    assert groups == {
        "env",
        "policy",
        "outcomes",
        "explainer",
        "training",
        "evaluation",
        "tracking",
        "experiment",
    }


def unless_in_an_experiment(option: str) -> Any:
    """An environment and its outcomes are in the experiment of their name; alone they are slow cases."""
    group, name = option.split("=")
    again = group in ("env", "outcomes") and f"experiment={name}" in OPTIONS
    return pytest.param(option, marks=pytest.mark.slow if again and name not in ("agent", "dataset") else ())


@pytest.mark.parametrize("option", [unless_in_an_experiment(option) for option in OPTIONS])
def test_every_option_composes_and_instantiates(
    option: str, compose_config: Compose, agent: Any, dataset: str, tmp_path: Path
) -> None:
    partners = list(PARTNERS.get(option, []))
    if option.endswith("=dataset"):
        partners.append(dataset)
    if option == "training=buffer":
        model = DQN("MlpPolicy", "CartPole-v1", learning_starts=100, buffer_size=50, device="cpu").learn(20)
        model.save_replay_buffer(tmp_path / "buffer.pkl")
        partners.append(f"training.path={tmp_path / 'buffer.pkl'}")
    if option in ENV_OF_AGENT:
        partners.append(agent(ENV_OF_AGENT[option]))
    if option == "env=zoo":
        zipped = Path(agent("cart_pole").partition("=")[2])
        zipped.rename(zipped.with_name("CartPole-v1.zip"))
        (zipped.parent / "config.yml").write_text("normalize: false")
        partners += ["experiment=agent", f"policy.path={zipped.parent}"]
    cfg = compose_config(option, *partners)
    build(cfg)
    instantiate(cfg.tracking)


# options that are there to differ from what Python does unless told otherwise
VARIANTS = {
    "explainer/polynomial": {"form"},
    "training/agent": {"every", "cut_long"},
    "training/alongside": {"alongside"},
    "training/spread": {"least_tried", "restarts"},
    "evaluation/exact": {"truth", "episodes", "curve_points", "curve_episodes", "forecast_episodes"},
    "evaluation/monte_carlo": {"truth", "episodes", "curve_episodes", "forecast_episodes"}
    | {"calibration_episodes"},
}
CLASSES = {
    f"{path.parent.name}/{path.stem}": OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    for group in ("policy", "explainer", "training", "evaluation", "tracking")
    for path in sorted((CONFIG_FOLDER / group).glob("*.yaml"))
    if "_target_" in path.read_text().partition("defaults:")[0]
}


@pytest.mark.parametrize("option", CLASSES)
def test_yaml_and_python_have_the_same_defaults(option: str) -> None:
    settings: Any = CLASSES[option]
    parameters = signature(get_object(settings["_target_"])).parameters.values()
    python = {one.name: one.default for one in parameters if one.default is not one.empty}
    written = {name: value for name, value in settings.items() if name in python and "${" not in str(value)}
    differ = {name for name, value in written.items() if value != _as_yaml(python[name])}
    assert differ == VARIANTS.get(option, set())


def _as_yaml(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


KINDS = ("fuel_taxi", "pendulum")
"""Numbered states and actions, or neither. `experiment=cart_pole` has numbered actions alone."""


@pytest.mark.parametrize(
    "env",
    [
        *KINDS,
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("frozen_lake", *UNNUMBERED)
            if name not in KINDS
        ),
    ],
)
def test_any_agent_is_explained_at_once(env: str, compose_config: Compose, agent: Any) -> None:
    """Nothing but its zip and its environment is named."""
    parts = build(compose_config("experiment=agent", f"env={env}", agent(env)))
    assert parts.examiner is not None
    explanation = parts.figures[0].explain(parts.explainer, parts.env)
    assert "reward" in explanation.legend.names
    assert explanation.expected.shape == (2, 30, len(explanation.legend.names))
    assert not explanation.known.any()


@pytest.mark.parametrize("form", ["efo", "fhgvf"])
def test_a_network_takes_both_forms(form: str, compose_config: Compose) -> None:
    learner: Any = build(compose_config(*CART_POLE, f"explainer.form={form}")).explainer.predictor
    assert learner.form == form


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["explainer.horizn=3"],
            "explainer.horizn: there is no such setting (--help lists all); did you mean explainer.horizon?",
        ),
        (
            ["hydra.rum.dir=x"],
            "hydra.rum.dir: there is no such setting (--help lists all); did you mean hydra.run.dir?",
        ),
        (["polcy=q_learning"], "polcy: there is no such setting (--help lists all); did you mean policy?"),
        (["policy=sb3_zp"], "; did you mean sb3_zip?"),
        (["training.steps=abc"], "training.steps must be a number, got 'abc'"),
        (["-m", "seed=one,2"], "seed must be a number, got 'one'"),
        (["recording.episodes=few"], "recording.episodes must be a number, got 'few'"),
        (["-m", "sed=1,2"], "sed: there is no such setting (--help lists all); did you mean seed?"),
        (["steps=5"], "; did you mean policy.steps or recording.steps or training.steps?"),
        (["seed"], "seed: expected key=value"),
        (["--experiment=paper"], "--experiment=paper: settings are written without dashes: experiment=paper"),
        (["seed=range(3)"], "Sweep parameters 'seed=range(3)' requires --multirun"),
    ],
)
def test_a_wrong_setting_is_refused_with_the_nearest_one(words: list[str], said: str) -> None:
    with pytest.raises(SettingError) as refused:
        check(words)
    assert str(refused.value).endswith(said)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("words", "updates"),
    [
        ([], 3000),
        (["training.steps=20_000"], 949),
        (["training.steps=1e6"], 3000),
        (["training=dataset"], 3000),
    ],
)
def test_fewer_transitions_have_fewer_updates(words: list[str], updates: int) -> None:
    settings = composed(["experiment=agent", *words]).explainer
    assert (settings.fit_updates, settings.model.fit_updates) == (updates, 2 * updates)


def test_right_settings_pass_alone_and_in_a_sweep() -> None:
    check(["experiment=agent", "env.id=CartPole-v1", "+training.extra=1"])
    check(["training.steps=1e4", "explainer=network", "explainer.device=cpu", "explainer.fit_updates=7"])
    check(["-m", "experiment=paper", "seed=range(10)", "training.steps=choice(100,200)"])
    check(["-m", "experiment=glob(fuel*)", "explainer.horizon=interval(2,9)", "seed=shuffle(range(3))"])


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("explainer.horizon=0", "explainer: horizon must be 1 or more, got 0"),
        ("explainer.horizon=long", "explainer: horizon must be a whole number, got 'long'"),
        ("explainer.step_size.rate=2", "explainer: rate must lie in"),
        ("explainer.discount=1.5", "explainer: discount must lie in"),
        ("+explainer.colour=red", "explainer: .*colour"),
        ("policy.learning_rate=fast", "policy: learning_rate must lie in .* got 'fast'"),
        ("policy.steps=-1", "policy: steps must be 0 or more, got -1"),
        ("+policy.stepz=3", "policy: .*stepz"),
        ("training.epsilon=1.2", "training: .*epsilon must lie in"),
        ("training.steps=1.5", "training: .*steps must be a whole number, got 1.5"),
        ("evaluation.episodes=0", "evaluation: .*episodes must be 1 or more"),
        ("seed=-1", "seed: seed must be 0 or more"),
        ("seed=one", "seed: seed must be a whole number, got 'one'"),
        ("env.id=FuelTaxi-v9", "env: .*FuelTaxi"),
        ("env.id=CartPole-v1", "policy: a table needs discrete observations, but CartPole-v1"),
        ("env.id=Telegraph-v0", r"env: Telegraph-v0 has actions of Text\("),
        ("outcomes=taxi", "outcomes: "),
        ("outcomes.outcomes.0.reward=19", "outcomes: .*dropoff should give 19, but the reward is 20"),
        ("outcomes.outcomes.0.function._target_=tpd.nothing.here", "outcomes: .*tpd.nothing"),
        ("+figures.mine={pairs: [{state: {row: 9, col: 0, fuel: 1, passenger: false}}]}", "figures: .*row=9"),
        ("+figures.mine={pairs: [{state: 3, action: fly}]}", "figures: .*fly.*south"),
        ("evaluation.curve_episodes=0.5", "evaluation: .*curve_episodes must be a whole number"),
        ("+evaluation.reference.dropoff={pi_mse: 5}", "evaluation: reference.dropoff.pi_mse must be"),
        ("+evaluation.reference.dropoff={pi_mse: ab}", "evaluation: reference.dropoff.pi_mse must be"),
        ("+figures.mine={pairs: [{state: 3}], contrast: fals}", "figures: contrast must be true or false"),
        (
            "explainer._target_=tests.run.test_configs.Unsaveable",
            "explainer: Unsaveable has no method `table`",
        ),
        ("training.alongside=fals", "training: alongside must be true or false, got 'fals'"),
        ("outcomes.partition=nope", "outcomes: partition must be true or false"),
        ("+figures.mine={pairs: [{state: {row: 2.5, col: 0, fuel: 1, passenger: false}}]}", "row=2.5"),
        ("+figures.mine={pairs: [{state: {row: 2, col: 0, fuel: 1, passenger: 7}}]}", "passenger=7"),
        ("+outcomes.outcomes.0.info_keys=[speed]", "outcomes: an outcome reads .*FuelTaxi-v0 must return"),
        ("+figures.mine={pairs: []}", "figures: .*mine"),
        ("training.save_dataset=/proc/x", "training: cannot write a dataset to /proc/x"),
        ("training.save_dataset=''", "training: save_dataset must be a folder, or null for none, got ''"),
        ("training.steps=1e30", r"training: steps must be 1e\+15 or less"),
        ("training.steps=0", "training: there are no transitions to learn from"),
        ("policy.steps=1e30", r"policy: steps must be 1e\+15 or less"),
        ("evaluation.curve_points=1e30", "evaluation: .*curve_points must be 10000 or less"),
        ("evaluation.episodes=1e30", r"evaluation: .*episodes must be 1e\+15 or less"),
        ("evaluation.forecast_episodes=1e12", "evaluation: .*lessen forecast_episodes"),
        (
            "training.num_envs=1e12",
            "training: 1000000000000 copies of FuelTaxi-v0, .* use a smaller training.num_envs",
        ),
        ("recording=null", "recording: must not be null"),
    ],
)
def test_a_wrong_value_is_refused_by_name(override: str, message: str, compose_config: Compose) -> None:
    with pytest.raises(ConfigError, match=message):
        build(compose_config("explainer=paper", override))


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("policy=q_learning", "policy: a table needs discrete observations, but CartPole-v1"),
        ("policy=sb3_zip", "policy: .*path"),
        ("policy.discount=2", "policy: discount must lie in"),
        ("explainer=replayed", "explainer: a table needs discrete observations, but CartPole-v1"),
        ("explainer=exact", "explainer: CartPole-v1 has no table P"),
        ("explainer.form=both", "explainer: form must be one of efo, fhgvf, got 'both'"),
        ("explainer.hidden=[32,0]", "explainer: hidden must be 1 or more, got 0"),
        ("explainer.target_update_rate=0", "explainer: target_update_rate must lie in"),
        ("explainer.learning_rate=-1", "explainer: learning_rate must lie in"),
        ("explainer.replay_size=0", "explainer: replay_size must be 1 or more"),
        ("explainer.batch_size=0.5", "explainer: batch_size must be a whole number"),
        ("explainer.updates_per_step=-1", "explainer: updates_per_step must lie in"),
        ("explainer.fit_updates=-1", "explainer: fit_updates must be 0 or more"),
        ("training=spread", "training: CartPole-v1 has no discrete states"),
        (
            "training.restarts=0.5",
            "training: every cannot be combined with epsilon, least_tried and restarts",
        ),
        ("evaluation=exact", "evaluation: CartPole-v1 has no table P"),
        ("evaluation.forecast_episodes=-1", "evaluation: .*forecast_episodes must be 0 or more"),
        (
            "+figures.mine={pairs: [{state: [0, 0]}]}",
            r"figures: an observation of CartPole-v1 must have shape \(4,\)",
        ),
        ("+figures.mine={pairs: [{state: {episode: -1, step: 0}}]}", "figures: episode must be 0 or more"),
        ("+figures.mine={pairs: [{state: start, action: opposite}]}", "figures: .*no action 'opposite'"),
    ],
)
def test_what_does_not_fit_a_world_without_tables_is_refused(
    override: str, message: str, compose_config: Compose
) -> None:
    overrides = [given for given in CART_POLE if given != FUNCTION or not override.startswith("policy=")]
    with pytest.raises(ConfigError, match=message):
        build(compose_config(*overrides, override))


def test_continuous_actions_have_an_opposite_and_no_runner_up(compose_config: Compose) -> None:
    pendulum = ["env=pendulum", *NO_TABLES]
    build(compose_config(*pendulum, "+figures.mine={pairs: [{state: start, action: opposite}]}"))
    build(compose_config(*pendulum, "+figures.mine={pairs: [{state: start, action: [1.5]}]}"))
    with pytest.raises(ConfigError, match=r"figures: .*runner_up"):
        build(compose_config(*pendulum, "+figures.mine={pairs: [{state: start, action: runner_up}]}"))
    with pytest.raises(ConfigError, match=r"figures: Pendulum-v1 has no action \[3"):
        build(compose_config(*pendulum, "+figures.mine={pairs: [{state: start, action: [3.0]}]}"))


def test_whole_numbers_may_be_written_with_an_exponent(compose_config: Compose) -> None:
    parts = build(compose_config("training.steps=1e5", "evaluation.episodes=1e3", "seed=1e0"))
    assert (parts.training.steps, parts.evaluation.episodes, parts.seed) == (100_000, 1000, 1)


def test_seed_zero_is_a_seed(compose_config: Compose) -> None:
    assert build(compose_config("seed=0")).seed == 0


def test_the_paper_settings_are_the_papers(compose_config: Compose) -> None:
    cfg = compose_config("experiment=paper")
    assert (cfg.explainer.horizon, cfg.explainer.discount, cfg.explainer.step_size.rate) == (30, 1.0, 0.1)
    assert (cfg.training.steps, cfg.training.epsilon) == (5_000_000, 0.2)
    policy = cfg.policy
    assert (policy.steps, policy.discount, policy.learning_rate) == (500_000, 0.99, 0.1)
    assert (policy.epsilon_start, policy.epsilon_end, policy.epsilon_decay_steps) == (1.0, 0.05, 250_000)
    assert cfg.evaluation.episodes == 10_000
    assert cfg.evaluation.reference.dropoff.pi_mse[0] == pytest.approx(1.86e-4)


def test_a_plugin_that_is_not_installed_is_named_with_its_extra() -> None:
    refused = list[str]()
    for plugin, extra in EXTRAS.items():
        group, _, option = plugin.rpartition("/")
        try:
            composed([f"{group}={'submitit_local' if option == 'submitit' else option}"])
        except SettingError as error:
            refused.append(str(error))
            assert refused[-1] == f"{plugin} is not installed; install the extra {extra!r}: " + (
                f"pip install 'tpd[{extra}]'"
            )
    assert refused  # no environment has them all: ray excludes versions that the others need
