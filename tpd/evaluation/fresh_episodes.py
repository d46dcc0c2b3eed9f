"""Plays fresh episodes, not used for learning, to judge forecasts and the policy's return."""

import logging
from dataclasses import dataclass

import numpy as np
import pandas as pd

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Episodes, FloatArray, IntArray, Rng, concatenate
from tpd.envs import Environment
from tpd.evaluation.budget import Budget
from tpd.evaluation.forecasts import ForecastSkill, forecast_skill
from tpd.evaluation.played_return import episode_returns
from tpd.predictors.explainer import Explainer
from tpd.sources.collection import NO_EXPLORATION, play
from tpd.sources.exploration import Exploration
from tpd.sources.forbidden_actions import forbidden_actions

log = logging.getLogger(__name__)

POLICY, FOIL = "policy", "foil"
"""Values of the column `actions` in tables: the policy's own action, or a foil."""
UNTIL_POLICY, UNTIL_FOIL = 0.4, 0.6
"""Fractions of the time budget that may be spent by the end of each kind of episodes."""


@dataclass(frozen=True)
class Forecasts:
    """Forecast skill for the policy's own actions and for foils."""

    policy: ForecastSkill
    foil: ForecastSkill | None
    """None if there are no foils."""
    returns: FloatArray
    """[episode]: undiscounted returns of the policy"""

    def metrics(self) -> dict[str, float]:
        """Flat names and values; those of foils are called `<event>/foil_skill` and so on."""
        return self.policy.metrics() | ({} if self.foil is None else self.foil.metrics("foil_"))

    def frame(self) -> pd.DataFrame:
        """One row for each outcome and range, for the policy's own actions and for foils."""
        parts = {POLICY: self.policy, FOIL: self.foil}
        frames = [found.frame().assign(actions=name) for name, found in parts.items() if found is not None]
        return pd.concat(frames, ignore_index=True)


def judge_forecasts(
    explainer: Explainer, env: Environment, outcomes: OutcomeSet, rng: Rng, episodes: int, budget: Budget
) -> Forecasts:
    """Compare forecasts with episodes of the policy, and with episodes that contain foils.

    The latter take one foil at a time, then follow the policy for at least the whole horizon. So no window is
    cut by the next foil, and no window is selected by its outcome.
    """
    horizon = explainer.predictor.horizon
    departing = Exploration(0.0, every=(horizon, 2 * horizon))

    def played(how: Exploration, what: str, share: float) -> Episodes:
        def some(count: int) -> Episodes:
            keys = outcomes.info_keys
            return play(env, explainer.policy, rng, episodes=count, info_keys=keys, exploration=how)

        return joined(budget.parts(what, episodes, share, some))

    own = played(NO_EXPLORATION, "fresh episodes", UNTIL_POLICY)
    other = played(departing, "fresh episodes with foils", UNTIL_FOIL)
    if warning := forbidden_actions(env, own.transitions, outcomes):
        log.warning(warning)
    assert other.transitions.own is not None
    foils = not other.transitions.own.all()
    return Forecasts(
        policy=forecast_skill(explainer, outcomes, own),
        foil=forecast_skill(explainer, outcomes, other, foils=True) if foils else None,
        returns=episode_returns(own),
    )


def joined(parts: list[Episodes]) -> Episodes:
    """Concatenate episodes."""
    lengths = [len(part.transitions) for part in parts]
    begins: list[IntArray] = [part.begins + sum(lengths[:number]) for number, part in enumerate(parts)]
    return Episodes(concatenate([part.transitions for part in parts]), np.concatenate(begins))
