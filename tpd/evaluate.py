"""How wrong an explainer is: the per-event error table, and where it contradicts the agent."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from tpd.checks import one_of, whole_number
from tpd.envs import Environment
from tpd.explainer import Explainer
from tpd.types import FloatArray, IntArray, Predictor, Transitions

METRICS = ("pi_mse", "foil_mse", "pi_max", "foil_max")


@dataclass(frozen=True)
class Visits:
    """The pairs met in episodes, each with the number of times it was met."""

    state: IntArray
    """[pair]"""
    action: IntArray
    """[pair]"""
    count: IntArray
    """[pair]"""

    @classmethod
    def of(cls, transitions: Transitions, num_actions: int) -> "Visits":
        """Count the pairs of a batch."""
        code = transitions.observation * num_actions + transitions.action
        pairs, count = np.unique(code, return_counts=True)
        return cls(*np.divmod(pairs, num_actions), count)

    def foils(self, env: Environment) -> "Visits":
        """The valid actions not taken, counted as often as they were passed over."""
        valid = env.mask(self.state)
        valid[np.arange(len(valid)), self.action] = False
        row, action = np.nonzero(valid)
        return Visits(self.state[row], action, self.count[row])


@dataclass(frozen=True)
class Errors:
    """Errors of explanations over the states met, for actions taken (pi) and passed over (foil)."""

    names: tuple[str, ...]
    """[outcome]"""
    pi_mse: FloatArray
    """[outcome]"""
    foil_mse: FloatArray
    """[outcome]"""
    pi_max: FloatArray
    """[outcome]"""
    foil_max: FloatArray
    """[outcome]"""
    pi_known: float
    """Share of visits whose pair was ever tried; an untried pair scores as a prediction of 0."""
    foil_known: float
    """The same for the actions passed over."""
    disagreement: float
    """Share of visits where the explanations favour another action; NaN without rewards."""

    def metrics(self) -> dict[str, float]:
        """Flat names and values: `<event>/pi_mse` and so on."""
        table = {
            f"{name}/{metric}": float(getattr(self, metric)[k])
            for k, name in enumerate(self.names)
            for metric in METRICS
        }
        overall = {"known/pi": self.pi_known, "known/foil": self.foil_known}
        return table | overall | {"disagreement": self.disagreement}

    def frame(self) -> pd.DataFrame:
        """A row for each outcome, a column for each metric."""
        columns = {metric: getattr(self, metric) for metric in METRICS}
        return pd.DataFrame(columns, index=pd.Index(self.names, name="outcome"))


class Evaluation:
    """What explanations are compared with, over how many episodes, and how often.

    truth: makes the predictor that is right; None where there is none.
    curve_points: how often the errors are measured in the course of learning, at growing intervals.
    reference: figures to print beside the errors: outcome -> metric -> (mean, standard deviation).
    """

    def __init__(
        self,
        *,
        truth: Callable[..., Predictor] | None,
        episodes: int,
        curve_points: int,
        curve_episodes: int,
        reference: Mapping[str, Mapping[str, tuple[float, float]]],
    ) -> None:
        self.truth = truth
        self.episodes = whole_number("episodes", episodes, at_least=1)
        self.curve_points = whole_number("curve_points", curve_points, at_least=0)
        self.curve_episodes = whole_number("curve_episodes", curve_episodes, at_least=1)
        self.reference = reference
        for outcome, figures in reference.items():
            for metric, figure in figures.items():
                one_of(f"the metric of reference.{outcome}", metric, METRICS)
                numbers = isinstance(figure, list | tuple) and all(isinstance(x, int | float) for x in figure)
                if not numbers or len(figure) != 2:
                    raise ValueError(
                        f"reference.{outcome}.{metric} must be [mean, standard deviation], got {figure!r}"
                    )


class LearningCurve:
    """A callback that has the errors measured from time to time while transitions come in."""

    def __init__(self, measure: Callable[[int], None], steps: int, points: int) -> None:
        self._measure = measure
        self._steps = steps
        self._seen = 0
        # the end itself is measured by the final evaluation
        self._due = np.geomspace(max(1, steps / 1000), max(1, steps), points + 1)[:-1].round().tolist()

    def __call__(self, transitions: Transitions) -> None:
        self._seen += len(transitions)
        if self._due and self._due[0] <= self._seen < self._steps:
            self._due = [step for step in self._due if step > self._seen]
            self._measure(self._seen)


def evaluate(explainer: Explainer, truth: Explainer, env: Environment, episodes: Transitions) -> Errors:
    """Compare two explainers over the states met in episodes of the policy."""
    taken = Visits.of(episodes, env.num_actions)
    passed_over = taken.foils(env)
    pi_mse, pi_max, pi_known = _errors(explainer, truth, taken)
    foil_mse, foil_max, foil_known = _errors(explainer, truth, passed_over)
    return Errors(
        names=explainer.legend.names,
        pi_mse=pi_mse,
        foil_mse=foil_mse,
        pi_max=pi_max,
        foil_max=foil_max,
        pi_known=pi_known,
        foil_known=foil_known,
        disagreement=_disagreement(explainer, env, taken),
    )


def _errors(explainer: Explainer, truth: Explainer, visits: Visits) -> tuple[FloatArray, FloatArray, float]:
    """Mean square and largest error per outcome, and the share of visits that are known."""
    learned = explainer.explain(visits.state, visits.action)
    exact = truth.explain(visits.state, visits.action)
    error = (learned - exact).expected
    error[~learned.known] = -exact.expected[~learned.known]
    total = max(1, visits.count.sum())
    mse = np.einsum("b,bhk->k", visits.count, error**2) / (total * learned.horizon)
    largest = np.abs(error).max(axis=(0, 1), initial=0)
    return mse, largest, float(visits.count @ learned.known / total)


def _disagreement(explainer: Explainer, env: Environment, visits: Visits) -> float:
    if explainer.legend.reward_bound is None:
        return float("nan")
    favoured = explainer.favoured(visits.state, visits.action, env.mask(visits.state))
    return float(np.average(favoured != visits.action, weights=visits.count))


def write_errors(frame: pd.DataFrame, path: Path) -> None:
    """Write a table of errors as JSON that loses no digit."""
    path.write_text(json.dumps(frame.reset_index().to_dict(orient="split", index=False)))


def read_errors(path: Path) -> pd.DataFrame:
    """Read what `write_errors` wrote."""
    return pd.DataFrame(**json.loads(path.read_text())).set_index("outcome")
