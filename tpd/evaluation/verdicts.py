"""The verdicts of fresh episodes, from ranges of steps to every step that an explanation speaks of."""

import numpy as np

from tpd.core.outcomes import Legend
from tpd.core.types import IntArray
from tpd.core.verdicts import Verdict, Verdicts
from tpd.evaluation.forecasts import RETURN, TERMINATED, ForecastSkill, by_steps, step_ranges


def verdicts(policy: ForecastSkill, foil: ForecastSkill | None, legend: Legend) -> Verdicts:
    """[2, ...]: on the policy's own actions, and on foils; what is not judged has no verdict."""
    own = _of(policy, legend)
    return own.joined(_of(foil, legend) if foil is not None else _none_like(own))


def _of(found: ForecastSkill, legend: Legend) -> Verdicts:
    """[1, ...]: every step has the verdict of its range or, of sums, that of the next step judged."""
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


def _none_like(own: Verdicts) -> Verdicts:
    return Verdicts(*(np.full_like(part, Verdict.NOT_JUDGED) for part in (own.at, own.by, own.returns)))
