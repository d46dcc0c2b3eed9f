"""Evaluation settings, and the examiner that compares an explainer with the truth."""

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from tpd.core.seeding import generator
from tpd.core.types import FloatArray, Rng
from tpd.envs import Environment
from tpd.evaluation.budget import Budget
from tpd.evaluation.calibration import FEWEST, calibrate
from tpd.evaluation.errors import METRICS, Errors, evaluate
from tpd.guards.settings import number, one_of, whole_number
from tpd.guards.sizes import require_memory
from tpd.predictors.cases import Cases, Truth
from tpd.predictors.explainer import Explainer
from tpd.predictors.pair_table import HasTable
from tpd.predictors.rollouts import MonteCarlo, SampledCases, joined

MOST_POINTS = 10_000
EPISODE = 100
"""Minimum bytes of an episode."""
UNTIL_CALIBRATED, UNTIL_ERRORS = 0.85, 1.0
"""Fractions of the time budget that may be spent by the end of calibration, and of the errors."""
OPEN = 0.05
"""A forecast leaves an event open if its mean variance p (1 - p) is above this: 5 % or more each way."""
SETTLED = 0.25
"""Rollouts determine the event if their variance is below this fraction of the forecast's."""
ENOUGH_MOMENTS = 10
"""Minimum number of moments to detect hidden state."""


class Evaluation:
    """Settings of an evaluation: the truth, numbers of episodes, learning curve and time budget.

    truth: makes the source of truth (exact or rollouts); None if there is none.
    calibration_episodes: episodes with other moments, on which an explainer's errors are measured to give it
        bands, if the truth comes from rollouts; 0 for none.
    curve_points: number of points of the learning curve, at growing intervals.
    forecast_episodes: fresh episodes that forecasts are compared with; 0 for none.
    reference: numbers to print beside the errors: outcome -> metric -> (mean, standard deviation).
    seconds: time budget for judging a finished explainer; what does not fit is left out and reported.
    """

    def __init__(
        self,
        *,
        truth: Callable[..., Truth] | None = None,
        episodes: int = 1,
        curve_points: int = 0,
        curve_episodes: int = 1,
        forecast_episodes: int = 0,
        calibration_episodes: int = 0,
        reference: Mapping[str, Mapping[str, tuple[float, float]]] = MappingProxyType({}),
        seconds: float = 60,
    ) -> None:
        self.truth = truth
        self.seconds = number("seconds", seconds, 0, math.inf)
        self.episodes = whole_number("episodes", episodes, at_least=1)
        self.curve_points = whole_number("curve_points", curve_points, at_least=0, at_most=MOST_POINTS)
        self.curve_episodes = whole_number("curve_episodes", curve_episodes, at_least=1)
        self.forecast_episodes = whole_number("forecast_episodes", forecast_episodes, at_least=0)
        self.calibration_episodes = whole_number("calibration_episodes", calibration_episodes, at_least=0)
        for name in ("episodes", "curve_episodes", "forecast_episodes", "calibration_episodes"):
            require_memory(f"the {name},", (getattr(self, name), EPISODE), "uint8", f"lessen {name}")
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
    """Measures an explainer's errors repeatedly; on the same cases if the policy does not change."""

    def __init__(
        self, explainer: Explainer, env: Environment, truth: Truth, seed: int, policy_stays: bool
    ) -> None:
        self._explainer, self._env, self._truth = explainer, env, truth
        self._seed, self._policy_stays = seed, policy_stays
        self._known: dict[int, Cases] = {}

    def errors(self, episodes: int, bands: bool = False) -> Errors:
        """The errors in the states that the current policy visits in this number of episodes."""
        if not self._policy_stays or episodes not in self._known:
            self._known = {episodes: self._truth.cases(episodes, generator(self._seed, "evaluation"))}
        return evaluate(self._explainer, self._env, self._known[episodes], bands)

    def final_errors(self, episodes: int, budget: Budget) -> Errors:
        """The final errors, with bands. With rollouts, as many moments as fit into the budget are used."""
        if isinstance(self._truth, MonteCarlo):
            rng = generator(self._seed, "evaluation")
            self._known = {episodes: self._cases(self._truth, episodes, rng, budget, "errors", UNTIL_ERRORS)}
        return self.errors(episodes, bands=True)

    def calibrate(
        self, episodes: int, counter: Callable[[str, int], Callable[[int], None]], budget: Budget
    ) -> None:
        """Calibrate the explainer's bands, at other moments than those it is judged on.

        Does nothing if the truth does not come from rollouts, or if `episodes` is 0.
        """
        truth, learned = self._truth, not isinstance(self._explainer.predictor, HasTable)
        if isinstance(truth, MonteCarlo) and learned and episodes:
            truth.progress = counter("calibration", truth.moments)
            rng = generator(self._seed, "calibration")
            cases = self._cases(truth, episodes, rng, budget, "calibration", UNTIL_CALIBRATED)
            calibrate(self._explainer, cases, rng)
            truth.progress = None

    @property
    def hidden_information(self) -> str:
        """A warning if the simulator knows more than the explainer, by the last cases; empty if not."""
        if self.rolled_out is None or isinstance(self._explainer.predictor, HasTable):
            return ""
        truth, every = self.rolled_out
        cases = every[every.own]
        names, once = self._explainer.legend.names, np.flatnonzero(truth.once[:-1])
        forecast = self._explainer.explain(cases.observations, cases.actions).expected
        by_then = [np.clip(expected[..., once].sum(axis=1), 0, 1) for expected in (cases.expected, forecast)]
        return hidden_information([names[k] for k in once], by_then[0], cases.rollouts, by_then[1])

    def _cases(
        self, truth: MonteCarlo, episodes: int, rng: Rng, budget: Budget, purpose: str, share: float
    ) -> SampledCases:
        """Moments of the episodes, as many as fit into this share of the budget."""
        moments = truth.moments

        def some(count: int) -> SampledCases:
            truth.moments = count
            return truth.cases(math.ceil(episodes * count / moments), rng)

        parts = budget.parts(f"moments with rollouts for {purpose}", moments, share, some, FEWEST)
        truth.moments = moments
        return joined(parts)

    @property
    def rolled_out(self) -> tuple[MonteCarlo, SampledCases] | None:
        """The last cases and their source, if the truth comes from rollouts."""
        cases = next(iter(self._known.values()), None)
        if not isinstance(self._truth, MonteCarlo) or not isinstance(cases, SampledCases):
            return None
        return self._truth, cases


def hidden_information(
    names: Sequence[str], rolled_out: FloatArray, rollouts: FloatArray, forecast: FloatArray
) -> str:
    """A warning if rollouts determine an event that forecasts leave open; empty if there is none.

    rolled_out, forecast [moment, event]: probability of each event within the horizon. rollouts [moment]:
    number of rollouts; inf if deterministic. A fork copies the simulator's whole state, but a forecast sees
    only observations. So hidden state makes an event determined for rollouts and open for forecasts. Too
    little learning looks the same, so the warning names both.
    """
    if len(rollouts) < ENOUGH_MOMENTS or not names:
        return ""
    few = 1 + 1 / np.maximum(rollouts - 1, 1)[:, None]  # corrects the bias of a variance from few rollouts
    known = (few * rolled_out * (1 - rolled_out)).mean(axis=0)
    left_open = (forecast * (1 - forecast)).mean(axis=0)
    more = np.flatnonzero((left_open > OPEN) & (known < SETTLED * left_open))
    if not len(more):
        return ""
    most = more[np.argmax(left_open[more])]
    others = f" (and {len(more) - 1} more)" if len(more) > 1 else ""
    return (
        f"rollouts from the simulator's state predict with near certainty whether {names[most]!r}{others} "
        f"happens within the horizon (variance {known[most]:.3f} over {len(rollouts)} moments), but "
        f"forecasts from the observation do not ({left_open[most]:.3f}): it depends on hidden state, or too "
        "little was learned"
    )
