"""Compare the returns of fresh episodes with the distributions predicted by a return network.

python scripts/return_coverage.py env=mountain_car agent=agents/dqn-MountainCar-v0.zip
python scripts/return_coverage.py env=lunar_lander agent=agents/ppo-LunarLander-v2.zip training.steps=50000

A setting with a dot in its name is one of the config.
"""

import sys
from dataclasses import replace

import numpy as np
from conformal import observed, random_steps
from hydra import compose, initialize_config_dir

from tpd.core.distributions import Distribution
from tpd.core.seeding import generator
from tpd.core.types import FloatArray
from tpd.predictors.replayed.returns import predicts_returns
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.experiment import learn
from tpd.run.parts import Parts, build
from tpd.show.progress import ProgressBars
from tpd.sources.collection import play
from tpd.tracking.runs import Run

SETTINGS = {
    "env": "mountain_car",
    "agent": "",
    "atoms": "51",
    "updates": "10000",
    "episodes": "300",
    "seed": "0",
}
LOW, HIGH = 0.05, 0.95
TIME_LIMIT = 200


def made(settings: dict[str, str], others: list[str]) -> Parts:
    """The parts of a run with an untrained explainer of an agent."""
    overrides = [
        f"experiment={settings['env']}",
        f"policy.path={settings['agent']}",
        f"explainer.return_atoms={settings['atoms']}",
        f"explainer.fit_updates={settings['updates']}",
        f"seed={settings['seed']}",
        "evaluation=none",
        *others,
    ]
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        return build(compose("config", overrides))


def crps(found: Distribution, seen: FloatArray) -> FloatArray:
    """[window]: continuous ranked probability score (CRPS); for a point mass, the absolute error."""
    values, mass = found.values, found.probabilities
    level = np.cumsum(mass, axis=1) - mass / 2
    signs = (seen[:, None] < values) - level
    return np.asarray(2 * np.sum(mass * signs * (values - seen[:, None]), axis=1))


def main() -> None:
    """Learn, play episodes, and compare one window of each."""
    given = dict(argument.split("=", 1) for argument in sys.argv[1:])
    settings = SETTINGS | {name: value for name, value in given.items() if "." not in name}
    if unknown := settings.keys() - SETTINGS.keys():
        sys.exit(f"no setting {', '.join(unknown)}; there are {', '.join(SETTINGS)}")
    parts = made(settings, [f"{name}={value}" for name, value in given.items() if "." in name])
    learn(parts, Run(), ProgressBars(False))
    policy, horizon = parts.trainer.policy, parts.explainer.predictor.horizon
    rng = generator(parts.seed, "return coverage")
    env, count = replace(parts.env, max_episode_steps=TIME_LIMIT), int(settings["episodes"])
    episodes = play(env, policy, rng, episodes=count, info_keys=parts.outcomes.info_keys)
    steps = random_steps(episodes, horizon, TIME_LIMIT, rng)
    seen = observed(episodes, steps, episodes.transitions.reward, policy.discount ** np.arange(horizon))
    windows = episodes.transitions[steps]
    returns = predicts_returns(parts.explainer)
    assert returns is not None
    found = returns.returns(windows.observation, windows.action)
    assert found is not None
    known = found.lowest
    expected = parts.explainer.explain(windows.observation, windows.action).expected_return[:, -1]
    low, high = known.quantile(LOW), known.quantile(HIGH)
    width = max(1e-3 * float(np.ptp(seen)), 1e-6)  # values closer than this count as equal
    print(f"{len(seen)} windows of {horizon} steps, discount {policy.discount}, {settings}")
    print(f"observed: mean {seen.mean():.3f}, sd {seen.std():.3f}, {seen.min():.2f} to {seen.max():.2f}")
    print(f"within 5-95 %: {np.mean((seen >= low - width) & (seen <= high + width)):.3f}")
    print(f"below: {np.mean(seen < low - width):.3f}, above: {np.mean(seen > high + width):.3f}")
    print(f"interval: mean {np.mean(high - low):.3f}, median {np.median(high - low):.3f}")
    print(f"CRPS {crps(known, seen).mean():.3f}, bias of its mean {np.mean(known.mean - seen):+.3f}")
    print(f"mean error of its mean {np.abs(known.mean - seen).mean():.3f}")
    print(f"mean error of the expected return {np.abs(expected - seen).mean():.3f}")


if __name__ == "__main__":
    main()
