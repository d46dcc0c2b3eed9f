"""How wrong an explainer is: the per-event error table, and where it contradicts the agent."""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tpd.calibration import Calibratable, calibrate
from tpd.checks import one_of, whole_number
from tpd.coverage import Coverage, coverage
from tpd.envs import Environment
from tpd.explainer import Explainer
from tpd.memory import require
from tpd.plain_files import REAL, blame, read_json
from tpd.seeding import generator
from tpd.truth.cases import Cases, Truth
from tpd.truth.monte_carlo import MonteCarlo, SampledCases
from tpd.types import FloatArray, State, Transitions

METRICS = ("pi_mse", "foil_mse", "pi_max", "foil_max")
MOST_POINTS = 10_000
EPISODE = 100
"""Bytes that an episode takes at least."""
OVERALL = ("known/pi", "known/foil", "disagreement")


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
    """Share of the visits whose explained return is known where the explanations favour another action;
    NaN where there are none, or no rewards."""
    pi_noise: FloatArray | None = None
    """[outcome]: the part of pi_mse that is due to the truth, where that is an estimate"""
    foil_noise: FloatArray | None = None
    """[outcome]: the same for foil_mse"""
    pi_bands: Coverage | None = None
    """How often the bands hold the truth, where that was asked for and there are bands."""
    foil_bands: Coverage | None = None
    """The same for the actions passed over."""

    def metrics(self) -> dict[str, float]:
        """Flat names and values: `<event>/pi_mse` and so on."""
        table = {
            f"{name}/{metric}": float(value)
            for metric, column in self._columns().items()
            for name, value in zip(self.names, column, strict=True)
        }
        overall = dict(
            zip(OVERALL, map(float, (self.pi_known, self.foil_known, self.disagreement)), strict=True)
        )
        for name, bands in self._bands.items():
            overall[f"covered/{name}"] = bands.overall.covered.item()
            overall[f"judged/{name}"] = bands.overall.shown.item()
        return table | overall

    def frame(self) -> pd.DataFrame:
        """A row for each outcome, a column for each metric, and how much of it stands on known pairs."""
        frame = pd.DataFrame(self._columns(), index=pd.Index(self.names, name="outcome"))
        return frame.assign(pi_known=self.pi_known, foil_known=self.foil_known)

    def _columns(self) -> dict[str, FloatArray]:
        columns = {metric: getattr(self, metric) for metric in METRICS}
        if self.pi_noise is not None:
            columns |= {"pi_noise": self.pi_noise, "foil_noise": self.foil_noise}
        for name, bands in self._bands.items():
            columns |= {f"{name}_covered": bands.covered, f"{name}_judged": bands.shown}
        return columns

    @property
    def _bands(self) -> dict[str, Coverage]:
        both = {"pi": self.pi_bands, "foil": self.foil_bands}
        return {name: bands for name, bands in both.items() if bands is not None}


class Evaluation:
    """What explanations are compared with, over how many episodes, and how often.

    truth: makes the predictor that is right; None where there is none.
    calibration_episodes: episodes of other moments, at which an explainer that can learn how wrong it is
        does so before it is judged, where truth comes from rollouts; 0 for none.
    curve_points: how often the errors are measured in the course of learning, at growing intervals.
    verification_episodes: fresh episodes with which the predictions are compared; 0 for none.
    reference: figures to print beside the errors: outcome -> metric -> (mean, standard deviation).
    """

    def __init__(
        self,
        *,
        truth: Callable[..., Truth] | None,
        episodes: int,
        curve_points: int,
        curve_episodes: int,
        verification_episodes: int,
        calibration_episodes: int,
        reference: Mapping[str, Mapping[str, tuple[float, float]]],
    ) -> None:
        self.truth = truth
        self.episodes = whole_number("episodes", episodes, at_least=1)
        self.curve_points = whole_number("curve_points", curve_points, at_least=0, at_most=MOST_POINTS)
        self.curve_episodes = whole_number("curve_episodes", curve_episodes, at_least=1)
        self.verification_episodes = whole_number("verification_episodes", verification_episodes, at_least=0)
        self.calibration_episodes = whole_number("calibration_episodes", calibration_episodes, at_least=0)
        for name in ("episodes", "curve_episodes", "verification_episodes", "calibration_episodes"):
            require(f"the {name},", (getattr(self, name), EPISODE), "uint8", f"lessen {name}")
        self.reference = reference
        for outcome, figures in reference.items():
            for metric, figure in figures.items():
                one_of(f"the metric of reference.{outcome}", metric, METRICS)
                numbers = isinstance(figure, list | tuple) and all(isinstance(x, int | float) for x in figure)
                if not numbers or len(figure) != 2:
                    raise ValueError(
                        f"reference.{outcome}.{metric} must be [mean, standard deviation], got {figure!r}"
                    )


class Examiner:
    """Judges an explainer again and again; over the same cases, if the policy stays as it is."""

    def __init__(
        self, explainer: Explainer, env: Environment, truth: Truth, seed: int, policy_stays: bool
    ) -> None:
        self._explainer = explainer
        self._env = env
        self._truth = truth
        self._seed = seed
        self._policy_stays = policy_stays
        self._known: dict[int, Cases] = {}

    def errors(self, episodes: int, bands: bool = False) -> Errors:
        """The errors over the states that the policy, as it is now, meets in so many episodes."""
        if not self._policy_stays or episodes not in self._known:
            self._known = {episodes: self._truth.cases(episodes, generator(self._seed, "evaluation"))}
        return evaluate(self._explainer, self._env, self._known[episodes], bands)

    def calibrate(self, episodes: int, counter: Callable[[str, int], Callable[[int], None]]) -> None:
        """Let the explainer find out how wrong it is, at other moments than those it is judged at.

        Nothing happens with a truth that does not come from rollouts, or no episodes.
        """
        truth, can_be = self._truth, isinstance(self._explainer.predictor, Calibratable)
        if isinstance(truth, MonteCarlo) and can_be and episodes:
            truth.progress = counter("calibration", truth.moments)
            calibrate(self._explainer, truth, episodes, generator(self._seed, "calibration"))
            truth.progress = None

    @property
    def rolled_out(self) -> tuple[MonteCarlo, SampledCases] | None:
        """What was judged last, where the truth comes from rollouts."""
        cases = next(iter(self._known.values()), None)
        if not isinstance(self._truth, MonteCarlo) or not isinstance(cases, SampledCases):
            return None
        return self._truth, cases


class LearningCurve:
    """A callback that has the errors measured from time to time while transitions come in."""

    def __init__(self, measure: Callable[[int], Errors], steps: int, points: int) -> None:
        self.measured: dict[int, Errors] = {}
        """By the number of transitions learned from."""
        self._measure = measure
        self._steps = steps
        self._seen = 0
        # the end itself is measured by the final evaluation
        self._due = np.geomspace(max(1, steps / 1000), max(1, steps), points + 1)[:-1].round().tolist()

    def __call__(self, transitions: Transitions) -> None:
        self._seen += len(transitions)
        if self._due and self._due[0] <= self._seen < self._steps:
            self._due = [step for step in self._due if step > self._seen]
            self.measured[self._seen] = self._measure(self._seen)

    def state(self) -> State:
        """What was measured so far, and when the next time is due."""
        found = {
            f"{step}/{name}": np.asarray(value)
            for step, errors in self.measured.items()
            for name, value in vars(errors).items()
            if isinstance(value, float | np.ndarray)  # bands are judged but at the end
        }
        names = [errors.names for errors in self.measured.values()][:1]
        return {"seen": np.array(self._seen), "due": np.array(self._due), "names": np.array(names), **found}

    def restore(self, state: State) -> None:
        """Go on from there."""
        self._seen, self._due = int(state["seen"]), state["due"].tolist()
        names = tuple(str(name) for name in state["names"].reshape(-1))
        kept: dict[int, dict[str, Any]] = {}
        for key, value in state.items():
            step, _, name = key.partition("/")
            if name:
                kept.setdefault(int(step), {})[name] = value if value.ndim else float(value)
        self.measured = {step: Errors(names=names, **values) for step, values in kept.items()}


def evaluate(explainer: Explainer, env: Environment, cases: Cases, bands: bool = False) -> Errors:
    """Compare what is explained with what is true; with bands, also how often they hold it."""
    taken, passed_over = cases[cases.own], cases[~cases.own]
    pi_mse, pi_max, pi_known = _errors(explainer, taken)
    foil_mse, foil_max, foil_known = _errors(explainer, passed_over)
    return Errors(
        names=explainer.legend.names,
        pi_mse=pi_mse,
        foil_mse=foil_mse,
        pi_max=pi_max,
        foil_max=foil_max,
        pi_known=pi_known,
        foil_known=foil_known,
        disagreement=_disagreement(explainer, env, taken),
        pi_noise=_noise(taken),
        foil_noise=_noise(passed_over),
        pi_bands=coverage(explainer, taken) if bands else None,
        foil_bands=coverage(explainer, passed_over) if bands else None,
    )


def _errors(explainer: Explainer, cases: Cases) -> tuple[FloatArray, FloatArray, float]:
    """Mean square and largest error per outcome, and the share of visits that are known."""
    learned = explainer.explain(cases.observations, cases.actions)
    exact = cases.expected[:, :, :-1]
    error = np.where(learned.known[:, None, None], learned.expected, 0) - exact
    mse = _mean(error**2, cases)
    largest = np.abs(error).max(axis=(0, 1), initial=0)
    return mse, largest, float(cases.weight @ learned.known / max(1, cases.weight.sum()))


def _noise(cases: Cases) -> FloatArray | None:
    return None if cases.standard_error is None else _mean(cases.standard_error[:, :, :-1] ** 2, cases)


def _mean(values: FloatArray, cases: Cases) -> FloatArray:
    """[outcome]: the mean of values [case, horizon, outcome] over cases and horizons."""
    total = max(1, cases.weight.sum()) * values.shape[1]
    return np.asarray(np.einsum("b,bhk->k", cases.weight, values) / total)


def _disagreement(explainer: Explainer, env: Environment, cases: Cases) -> float:
    if explainer.legend.reward_bound is None or not env.discrete or not len(cases):
        return float("nan")
    returns = explainer.action_returns(cases.observations)
    favoured = explainer.favoured(returns, cases.actions, env.mask(cases.observations))
    weight = np.where(np.isnan(returns[np.arange(len(cases)), cases.actions]), 0, cases.weight)
    return float(weight @ (favoured != cases.actions) / weight.sum()) if weight.any() else float("nan")


def write_table(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as JSON that loses no digit; a named index becomes a column."""
    named = frame.reset_index() if frame.index.name else frame
    path.write_text(json.dumps(named.to_dict(orient="split", index=False)))


def read_table(path: Path, words: Sequence[str] = (), numbers: Sequence[str] = ()) -> pd.DataFrame:
    """Read what `write_table` wrote; these columns of words, if any, and of numbers must be among others."""
    plain = read_json(path)
    with blame(path):
        frame = pd.DataFrame(plain["data"], columns=plain["columns"])
        if not frame.columns.is_unique or not len(frame):
            raise ValueError("it has no rows, or two columns of one name")
        for name in words:
            if not all(isinstance(word, str) for word in frame[name]):
                raise ValueError(f"its column {name} is not of words")
        for name in [str(name) for name in frame if name not in words] if words else numbers:
            if frame[name].dtype.kind not in REAL:
                raise ValueError(f"its column {name} is not of numbers")
        frame[[*words, *numbers]]
    return frame


def read_errors(path: Path, by: Sequence[str] = ()) -> pd.DataFrame:
    """Read a table with one row for each outcome, or for each and a number of something else."""
    frame = read_table(path, ["outcome"], [*METRICS, *by])
    _require_grid(path, frame, ["outcome", *by])
    return frame.set_index("outcome")


def read_verification(path: Path) -> pd.DataFrame:
    """Read a table with one row for each outcome and band."""
    frame = read_table(path, ["outcome", "band"], ["base_rate", "skill"])
    _require_grid(path, frame, ["outcome", "band"])
    return frame


def _require_grid(path: Path, frame: pd.DataFrame, by: Sequence[str]) -> None:
    """Refuse a table that has not one row for each combination."""
    combinations = math.prod(frame[name].nunique() for name in by)
    if frame.duplicated(list(by)).any() or len(frame) != combinations:
        raise ValueError(f"{path}: has {len(frame)} rows, not one for each {' and '.join(by)}")


def read_metrics(path: Path) -> dict[str, float]:
    """Read every figure of the errors of a run, by its name."""
    metrics = read_json(path)
    if not isinstance(metrics, dict) or not all(isinstance(value, float) for value in metrics.values()):
        raise ValueError(f"{path}: is no table of names and numbers")
    if missing := [name for name in OVERALL if name not in metrics]:
        raise ValueError(f"{path}: has no {missing[0]}")
    return metrics
