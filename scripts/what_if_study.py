"""Compare the flips that a what-if predicts with policies solved again, in all visited states of FuelTaxi.

python scripts/what_if_study.py     prints the table of docs/results/what_if.md, in less than a minute
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np
from hydra import compose, initialize_config_dir

from tpd.answers.resolve import resolve
from tpd.answers.what_if import returns, reward_of
from tpd.core.explanation import Explanation
from tpd.core.seeding import generator
from tpd.core.types import BoolArray, DiscretePolicy, FloatArray, IntArray
from tpd.envs.tabular import TabularModel
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import ROUNDING, Explainer
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import Parts, build
from tpd.sources.collection import play

EPISODES = 2000
HORIZONS = 30, 300
SMALL, LARGE = (0.5, 2.0), (0.1, 10.0)
OUTCOMES = "failure", "refuel", "move", "pickup", "dropoff"


class Flips(NamedTuple):
    """Flips predicted by a what-if, compared with those of the policy solved again."""

    named: int
    true: int
    both: int
    same_action: int
    """Flips in both where the new policy may take the action that overtakes."""

    def cells(self) -> str:
        return f"{self.named} | {share(self.both, self.named)} | {share(self.both, self.true)}"


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def best_actions(values: FloatArray, valid: BoolArray) -> BoolArray:
    """[state, action]: the valid actions with the largest value, including ties."""
    values = np.where(valid & ~np.isnan(values), values, -np.inf)
    largest = values.max(axis=1, keepdims=True)
    return np.asarray(values >= largest - ROUNDING * np.maximum(1, np.abs(largest)))


def compare(named: BoolArray, true: BoolArray, own: IntArray) -> Flips:
    """Compare the best actions [state, action] of the what-if and of the new policy."""
    rows = np.arange(len(own))
    what_if, anew = ~named[rows, own], ~true[rows, own]
    agreed = (named & true).any(axis=1)
    both = what_if & anew
    return Flips(int(what_if.sum()), int(anew.sum()), int(both.sum()), int((both & agreed).sum()))


class Study:
    """One policy, the states that it visits, and exact explanations of every valid action there."""

    def __init__(self, parts: Parts, model: TabularModel, policy: DiscretePolicy) -> None:
        self.parts, self.model = parts, model
        met = play(parts.env, policy, generator(parts.seed, "verification"), episodes=EPISODES)
        self.states = np.unique(met.transitions.observation)
        self.own = policy.action(self.states)
        self.valid = parts.env.mask(self.states)
        self.discount = policy.discount
        self.explanations = {horizon: self._explain(policy, horizon) for horizon in HORIZONS}

    def _explain(self, policy: DiscretePolicy, horizon: int) -> Explanation:
        solution = ExactSolution(self.parts.env, policy, self.parts.outcomes, horizon=horizon)
        row, action = np.nonzero(self.valid)
        return Explainer(solution, policy, self.parts.outcomes.legend).explain(self.states[row], action)

    def flips(self, rewards: Mapping[str, float]) -> Iterator[Flips]:
        """The flips for each horizon."""
        anew = resolve(self.model, self.parts.outcomes, rewards, self.discount).action_values(self.states)
        assert anew is not None
        for explanation in self.explanations.values():
            values = np.full(self.valid.shape, np.nan)
            values[self.valid] = returns(explanation, rewards)
            yield compare(best_actions(values, self.valid), best_actions(anew, self.valid), self.own)

    def table(self) -> Iterator[str]:
        """The lines of a Markdown table."""
        steps = " | ".join(f"predicted, {h} steps | precision | recall" for h in HORIZONS)
        yield f"| reward of | from | to | true flips | {steps} | same action |"
        yield "|---|--:|--:|--:|" + "--:|" * (3 * len(HORIZONS) + 1)
        yield line("(unchanged)", "", "", list(self.flips({})))
        for name, factors in {
            "all, factor 2": SMALL,
            "all, factor 10": LARGE,
        }.items():
            every = list[list[Flips]]()
            for outcome, factor in product(OUTCOMES, factors):
                now = reward_of(self.parts.outcomes.legend, outcome)
                every.append(list(self.flips({outcome: factor * now})))
                yield line(outcome, f"{now:g}", f"{factor * now:g}", every[-1])
            yield line(f"**{name}**", "", "", [total(flips) for flips in zip(*every, strict=True)])


def total(flips: Sequence[Flips]) -> Flips:
    return Flips(*(sum(column) for column in zip(*flips, strict=True)))


def line(name: str, now: str, then: str, flips: Sequence[Flips]) -> str:
    """One row: a change of rewards, with the flips for each horizon."""
    cells = " | ".join(one.cells() for one in flips)
    same = share(flips[-1].same_action, flips[-1].both)
    return f"| {name} | {now} | {then} | {flips[0].true} | {cells} | {same} |"


def main() -> None:
    with initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
        parts = build(compose("config", overrides=["experiment=fuel_taxi", "evaluation=none"]))
    model = parts.env.model
    assert model is not None
    parts.trainer.train()
    learned = parts.trainer.policy
    assert isinstance(learned, DiscretePolicy)
    optimal = resolve(model, parts.outcomes, {}, learned.discount)
    policies: dict[str, DiscretePolicy] = {"optimal policy": optimal, "Q-learned policy of seed 0": learned}
    for name, policy in policies.items():
        study = Study(parts, model, policy)
        print(f"\n## The {name}: {len(study.states)} states visited in {EPISODES} episodes\n")
        print(*study.table(), sep="\n", flush=True)


if __name__ == "__main__":
    main()
