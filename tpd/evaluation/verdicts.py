"""Expands verdicts on ranges of steps to verdicts on every step of an explanation."""

import numpy as np

from tpd.core.outcomes import Legend
from tpd.core.types import IntArray
from tpd.core.verdicts import Verdict, Verdicts
from tpd.evaluation.forecasts import RETURN, TERMINATED, ForecastSkill, by_steps, step_ranges


def verdicts(policy: ForecastSkill, foil: ForecastSkill | None, legend: Legend) -> Verdicts:
    """[2, ...]: on the policy's own actions and on foils; `NOT_JUDGED` if there are no foils."""
    own = _of(policy, legend)
    if foil is not None:
        return own.joined(_of(foil, legend))
    return own.joined(Verdicts(*(np.full_like(part, Verdict.NOT_JUDGED) for part in vars(own).values())))


def _of(found: ForecastSkill, legend: Legend) -> Verdicts:
    """[1, ...]: each step has the verdict of its range; each sum that of the next judged step."""
    horizon = len(found.by_horizon.windows)
    at, by = (judged.verdict for judged in (found.at, found.by))
    ranges = np.repeat(np.arange(len(step_ranges(horizon))), [len(steps) for steps in step_ranges(horizon)])
    later = np.searchsorted(by_steps(horizon), np.arange(horizon))
    columns = [found.names.index(name) for name in (*legend.names, TERMINATED)]
    returns = np.full(horizon, Verdict.NOT_JUDGED)
    if RETURN in found.names and RETURN not in legend.names:
        returns = by[later, found.names.index(RETURN)]
    parts: list[IntArray] = [at[ranges][:, columns], by[later][:, columns], returns]
    return Verdicts(*(part[None].astype(np.int8) for part in parts))
