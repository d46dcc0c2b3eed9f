"""The environments of the reading test, with made-up names for everything that would identify them.

Outcomes and actions are renamed before anything is explained, so every text is what tpd says about an
environment with these names.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from hydra.utils import instantiate

import tpd
from tpd.answers.answer import Answer
from tpd.answers.resolve import resolve
from tpd.core.explanation import Explanation
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Policy
from tpd.envs import Environment
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.unlearned import Unlearned
from tpd.run.answering import answered
from tpd.run.configs import composed
from tpd.run.expectations import Asking, Expectations
from tpd.run.fact_and_foil import compared_actions
from tpd.sources.episodes import Recording, record
from tpd.sources.named_states import NamedState
from tpd.store.saved_runs import SavedRun

WORDS = [
    "bamor",
    "celtu",
    "dimsa",
    "fergo",
    "gulip",
    "havno",
    "jentu",
    "kolpa",
    "lirsa",
    "mendo",
    "nulva",
    "oprit",
    "pendu",
    "quisa",
    "rolfa",
    "sumti",
    "tarvo",
    "ulsen",
    "vokri",
    "wemla",
    "xanto",
    "yelba",
    "zorni",
    "brelu",
    "crosa",
    "drunti",
    "flopa",
    "glinu",
    "hurpa",
    "jorma",
    "klesu",
    "murfa",
    "prelto",
    "skanu",
]
DISCOUNT = 0.99
ROLLOUTS, EPISODES = 60, 8


@dataclass(frozen=True)
class Case:
    """A state with the action taken, and the explanations of it and of another action."""

    name: str
    actions: tuple[str, ...]
    """All valid actions."""
    probabilities: tuple[float, ...] | None
    """[action]: the policy's probabilities"""
    values: tuple[float, ...] | None
    """[action]: the agent's action values"""
    answer: Callable[[str | None], Answer]
    """The answer, optionally with a what-if about an outcome."""

    def side(self, number: int) -> Explanation:
        """[1]: the explanation of the fact (0) or the foil (1)."""
        return self.answer(None).sides[number].explanation


@dataclass(frozen=True)
class World:
    """An environment under made-up names."""

    name: str
    hidden: tuple[str, ...]
    """The original names, which no text may contain."""
    horizon: int
    cases: Callable[[np.random.Generator], Iterator[Case]]
    """Cases in random order."""


def worlds(names: Sequence[str], agents: Path, seed: int) -> Iterator[World]:
    """The worlds with these names; `agents` is a folder with Stable-Baselines3 agents."""
    for name in names:
        words = np.random.default_rng([seed, *name.encode()]).permutation(WORDS).tolist()
        if name == "fuel_taxi":
            yield _fuel_taxi(words)
        else:
            zipped, env = AGENTS[name]
            yield _rolled_out(name, agents / zipped, env, words)


AGENTS = {
    "mountain_car": ("dqn-MountainCar-v0.zip", "MountainCar-v0"),
    "lunar_lander": ("qrdqn-LunarLander-v2.zip", "LunarLander-v3"),
}
KEPT = {
    "fuel_taxi": ("dropoff", "pickup", "refuel", "failure", "traffic", "move", "invalid"),
    "mountain_car": ("goal", "passes the bottom", "left hill", "right hill", "time"),
    "lunar_lander": (
        "landing",
        "crash",
        "out of view",
        "left leg contact",
        "right leg contact",
        "distance",
        "speed",
        "tilt",
        "legs",
        "fuel",
    ),
}
"""The explained outcomes: those of the configs, without the next actions."""
FIRSTS = {
    "fuel_taxi": ("pickup", "dropoff", "refuel", "failure"),
    "mountain_car": ("goal", "passes the bottom", "left hill", "right hill"),
    "lunar_lander": ("landing", "crash", "out of view", "left leg contact", "right leg contact"),
}
HORIZONS = {"fuel_taxi": 30, "mountain_car": 40, "lunar_lander": 25}


def _renamed(name: str, words: list[str]) -> tuple[OutcomeSet, Mapping[str, str]]:
    """The outcomes of a world, renamed and reordered, and the new names."""
    made: OutcomeSet = instantiate(composed([f"outcomes={name}"]).outcomes, _convert_="all")
    kept = {outcome.name: outcome for outcome in made.outcomes if outcome.name in KEPT[name]}
    names = {old: words.pop() for old in sorted(kept)}
    outcomes = [replace(kept[old], name=new) for old, new in sorted(names.items(), key=lambda pair: pair[1])]
    firsts = sorted(names[old] for old in FIRSTS[name])
    return OutcomeSet(outcomes, made.partition, made.accounts_for_reward, firsts), names


def _environment(real: Environment, words: list[str]) -> tuple[Environment, tuple[str, ...]]:
    """The environment with renamed actions, and their original names."""
    names = [real.name_of_action(action) for action in range(real.num_actions)]
    return Environment(real.id, action_names=[words.pop() for _ in names]), tuple(names)


def _fuel_taxi(words: list[str]) -> World:
    """The paper's taxi under an optimal policy; all numbers are exact."""
    outcomes, names = _renamed("fuel_taxi", words)
    env, actions = _environment(Environment("FuelTaxi-v0"), words)
    assert env.model is not None
    policy = resolve(env.model, outcomes, {}, DISCOUNT)
    exact = ExactSolution(env, policy, outcomes, horizon=HORIZONS["fuel_taxi"])
    run = SavedRun("world", Explainer(exact, policy, outcomes.legend), env, None, lambda: outcomes)

    def cases(rng: np.random.Generator) -> Iterator[Case]:
        assert env.model is not None
        states = np.flatnonzero(env.mask(np.arange(env.model.num_states)).sum(axis=1) > 1)
        for number, state in enumerate(rng.permutation(states)):
            place = NamedState(np.array([state]), f"place {number}", None)
            yield _case(run, place, Asking(0), int(policy.action(place.observation)[0]), rng)

    return World("fuel_taxi", (*names, *actions), HORIZONS["fuel_taxi"], cases)


def _rolled_out(name: str, zipped: Path, id: str, words: list[str]) -> World:
    """A world whose agent is rolled out in the simulator."""
    outcomes, names = _renamed(name, words)
    agent = tpd.load_agent(zipped, env=id)
    env, actions = _environment(agent.env, words)
    policy: Policy = agent.policy
    horizon = HORIZONS[name]
    explainer = Explainer(Unlearned(horizon, outcomes.width), policy, outcomes.legend)
    run = SavedRun("world", explainer, env, None, lambda: outcomes)

    def cases(rng: np.random.Generator) -> Iterator[Case]:
        recording = record(env, policy, outcomes, range(EPISODES))
        for number, (episode, step) in enumerate(_moments(recording, horizon, env, rng)):
            moment = recording.moment(episode, step)
            place = NamedState(moment.observation[None], f"place {number}", None, moment)
            taken = int(recording.episodes[episode].action[step])
            yield _case(run, place, Asking(ROLLOUTS), taken, rng)

    return World(name, (*names, *actions), horizon, cases)


def _moments(
    recording: Recording, horizon: int, env: Environment, rng: np.random.Generator
) -> Iterator[tuple[int, int]]:
    """(episode, step) in random order: within a horizon of the end, and before any time limit."""
    found = [
        (episode, step)
        for episode in range(len(recording.episodes))
        if recording.episodes[episode].terminated[-1]
        for step in range(
            max(0, len(recording.episodes[episode]) - horizon + 3), len(recording.episodes[episode]) - 4
        )
        if env.time_limit is None or step + horizon < env.time_limit
    ]
    for place in rng.permutation(np.array(found)):
        yield int(place[0]), int(place[1])


def _case(run: SavedRun, place: NamedState, asking: Asking, taken: int, rng: np.random.Generator) -> Case:
    """The action taken against a random other action."""
    here = Expectations(run, place, asking)
    valid = np.flatnonzero(run.env.mask(place.observation)[0])
    foil = int(rng.choice(valid[valid != taken]))
    fact, other = compared_actions(here, np.asarray(taken), np.asarray(taken), foil)
    names = tuple(run.env.name_of_action(action) for action in valid)
    policy, held = run.explainer.policy, dict[str | None, Answer]()
    probabilities = getattr(policy, "probabilities", lambda _: None)(place.observation)
    values = policy.action_values(place.observation)

    def answer(what_if: str | None) -> Answer:
        if what_if not in held:
            held[what_if] = answered(fact, other, what_if)
        return held[what_if]

    return Case(
        place.name,
        names,
        None if probabilities is None else tuple(float(p) for p in probabilities[0, valid]),
        None if values is None else tuple(float(v) for v in values[0, valid]),
        answer,
    )
