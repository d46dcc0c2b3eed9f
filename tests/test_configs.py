"""Every config composes and instantiates, and a wrong one is refused by name before any work."""

import pytest
from hydra.errors import HydraException
from hydra.utils import instantiate

from tests.conftest import Compose
from tpd.cli import CONFIG_FOLDER
from tpd.experiment import ConfigError, build


class Unsaveable:
    """A predictor with nothing to save."""

    def __init__(self, *parts: object, **settings: object) -> None:
        self.horizon = 1


OPTIONS = sorted(
    f"{path.parent.name}={path.stem}"
    for path in CONFIG_FOLDER.glob("*/*.yaml")
    if path.parent.name != "hydra"
)
# an outcome set fits its own environment only
ENV_OF_OUTCOMES = {
    "outcomes=frozen_lake": "frozen_lake",
    "outcomes=cliff_walking": "cliff_walking",
    "outcomes=taxi": "taxi",
}


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


@pytest.mark.parametrize("option", OPTIONS)
def test_every_option_composes_and_instantiates(option: str, compose_config: Compose) -> None:
    env = ENV_OF_OUTCOMES.get(option)
    cfg = compose_config(option, *([f"env={env}"] if env else []))
    build(cfg)
    instantiate(cfg.tracking)


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("explainer.horizn=3", "horizn"),
        ("polcy=q_learning", "polcy"),
        ("policy=sarsa", "sarsa"),
        ("sed=1", "sed"),
    ],
)
def test_a_wrong_key_is_refused_by_name(override: str, named: str, compose_config: Compose) -> None:
    with pytest.raises(HydraException, match=named):
        compose_config(override)


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
        ("env.id=CartPole-v1", "env: a table needs discrete observations, but CartPole-v1"),
        ("outcomes=taxi", "outcomes: "),
        ("outcomes.outcomes.0.reward=19", "outcomes: .*dropoff should give 19, the transition gave 20"),
        ("outcomes.outcomes.0.function._target_=tpd.nothing.here", "outcomes: .*tpd.nothing"),
        ("+figures.mine={pairs: [{state: {row: 9, col: 0, fuel: 1, passenger: false}}]}", "figures: .*row=9"),
        ("+figures.mine={pairs: [{state: 3, action: fly}]}", "figures: .*fly.*south"),
        ("evaluation.curve_episodes=0.5", "evaluation: .*curve_episodes must be a whole number"),
        ("+evaluation.reference.dropoff={pi_mse: 5}", "evaluation: reference.dropoff.pi_mse must be"),
        ("+evaluation.reference.dropoff={pi_mse: ab}", "evaluation: reference.dropoff.pi_mse must be"),
        ("+figures.mine={pairs: [{state: 3}], contrast: fals}", "figures: contrast must be true or false"),
        ("explainer._target_=tests.test_configs.Unsaveable", "explainer: Unsaveable has no method `table`"),
        ("training.alongside=fals", "training: alongside must be true or false, got 'fals'"),
        ("outcomes.partition=nope", "outcomes: partition must be true or false"),
        ("+figures.mine={pairs: [{state: {row: 2.5, col: 0, fuel: 1, passenger: false}}]}", "row=2.5"),
        ("+figures.mine={pairs: [{state: {row: 2, col: 0, fuel: 1, passenger: 7}}]}", "passenger=7"),
        ("+outcomes.outcomes.0.info_keys=[speed]", "outcomes: the info of FuelTaxi-v0 has no 'speed'"),
        ("+figures.mine={pairs: []}", "figures: .*mine"),
    ],
)
def test_a_wrong_value_is_refused_by_name(override: str, message: str, compose_config: Compose) -> None:
    with pytest.raises(ConfigError, match=message):
        build(compose_config("explainer=paper", override))


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
