"""The error table by outcome: mean squared and maximum error, coverage, and disagreement with the agent."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from tpd.core.types import FloatArray
from tpd.core.verdicts import is_limit
from tpd.envs import Environment
from tpd.evaluation.coverage import BandScores, Coverage, band_scores, coverage
from tpd.predictors.cases import Cases
from tpd.predictors.explainer import Explainer

METRICS = ("pi_mse", "foil_mse", "pi_max", "foil_max")
OVERALL = ("known/pi", "known/foil", "disagreement")


@dataclass(frozen=True)
class Errors:
    """Errors of explanations in visited states, for the policy's actions (pi) and for others (foil)."""

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
    """Fraction of visits whose pair was ever tried; an untried pair is scored as a prediction of 0."""
    foil_known: float
    """The same for foils."""
    disagreement: float
    """Fraction of visits where the explanations prefer another action and the band of the difference excludes
    0, among visits with a known return; NaN if there are none, or no rewards."""
    pi_noise: FloatArray | None = None
    """[outcome]: the part of pi_mse that comes from the noise of an estimated truth"""
    foil_noise: FloatArray | None = None
    """[outcome]: the same for foil_mse"""
    pi_bands: Coverage | None = None
    """Coverage of the bands, if asked for and if there are bands."""
    foil_bands: Coverage | None = None
    """The same for foils."""
    pi_scores: BandScores | None = None
    """Coverage and interval scores by forecast, if the truth comes from rollouts."""
    foil_scores: BandScores | None = None
    """The same for foils."""

    def metrics(self) -> dict[str, float]:
        """Flat names and values: `<event>/pi_mse` and so on."""
        table = {
            f"{name}/{metric}": float(value)
            for metric, column in self._columns().items()
            for name, value in zip(self.names, column, strict=True)
        }
        overall = dict(zip(OVERALL, (self.pi_known, self.foil_known, self.disagreement), strict=True))
        for name, bands in self._bands.items():
            overall[f"covered/{name}"] = bands.overall.covered.item()
            overall[f"judged/{name}"] = bands.overall.shown.item()
        for name, scores in (("pi", self.pi_scores), ("foil", self.foil_scores)):
            overall |= {} if scores is None else scores.metrics(name)
        return table | overall

    def band_frame(self) -> pd.DataFrame | None:
        """One row for each event, for the policy's actions and for foils; None without scores."""
        scores = {"policy": self.pi_scores, "foil": self.foil_scores}
        frames = [found.frame().assign(actions=name) for name, found in scores.items() if found is not None]
        return pd.concat(frames, ignore_index=True) if frames else None

    def frame(self) -> pd.DataFrame:
        """One row for each outcome, one column for each metric, and the fractions of known pairs."""
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


def evaluate(explainer: Explainer, env: Environment, cases: Cases, bands: bool = False) -> Errors:
    """Compare explanations with the truth; with `bands`, also compute their coverage."""
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
        pi_scores=band_scores(explainer, taken) if bands else None,
        foil_scores=band_scores(explainer, passed_over) if bands else None,
    )


def _errors(explainer: Explainer, cases: Cases) -> tuple[FloatArray, FloatArray, float]:
    """Mean squared and maximum error per outcome, and the fraction of visits that are known."""
    learned = explainer.explain(cases.observations, cases.actions)
    exact = cases.expected[:, :, :-1]
    error = np.where(learned.known[:, None, None], learned.expected, 0) - exact
    if explainer.limits is not None:  # the method does not predict this, so it has no error
        error[:, is_limit(explainer.limits.at[0, :, :-1])] = np.nan
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
    preferred = explainer.preferred(cases.observations, cases.actions, env.mask(cases.observations))
    weight = np.where(np.isnan(returns[np.arange(len(cases)), cases.actions]), 0, cases.weight)
    return float(weight @ (preferred != cases.actions) / weight.sum()) if weight.any() else float("nan")
