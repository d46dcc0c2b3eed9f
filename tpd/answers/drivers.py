"""Drivers of a forecast: Shapley values of the parts of a state, against states that the agent visits.

They say how the forecast, as a function, depends on its inputs, not what causes the event. The features of a
coalition keep their values in the explained state; the others take the values of a visited state
(interventional Shapley values). So the forecast is evaluated in mixed states that were never visited. If too
many of them are unlike any visited state, no values are reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from tpd.answers.sentences.learned import WRONG
from tpd.answers.shapley import PERMUTATIONS, exact_values, sampled_values
from tpd.core.drawing import draw
from tpd.core.types import BoolArray, FloatArray, IntArray, Rng

CORRELATED = 0.9
"""Features with a larger |correlation| over the visited states form one group: they do not occur apart."""
MOST_EXACT = 10
"""Up to this number of groups all coalitions are evaluated; for more, permutations are sampled."""
FEW = 3
"""A group of at most this size is named by all its features."""
SAMPLES, SIMULATED_SAMPLES = 25_000, 1000
"""Approximate number of mixed states that are evaluated; fewer if every forecast is simulated."""
MOST_BACKGROUND, LEAST_BACKGROUND = 1000, 10
MOST_UNLIKE = 0.5
"""Maximum fraction of mixed states that are farther from the visited states than any state of a typical
episode. With more, the values are averages over states that mostly do not occur."""
LEAST_EPISODES = 4
"""Minimum number of episodes to tell which states are unlike the visited ones."""
MOST_LEFT_OUT = 0.5
"""Maximum fraction of visited states that are left out because an action is invalid or untried in a mixture.
With more, the rest no longer represents the states that the agent visits."""
COMPARED, REFERENCE = 2000, 5000
"""Number of mixed states whose distance is measured, and of visited states to compare with."""

MISSING = "shap.Explanation needs the package shap, which is not installed: pip install 'tpd[drivers]'"

Forecast = Callable[[FloatArray], FloatArray]
"""rows [batch, feature] -> [batch]; NaN where it is not known"""


class Group(NamedTuple):
    """Features that are treated as one player."""

    name: str
    columns: IntArray


@dataclass(frozen=True, repr=False, eq=False)
class Drivers:
    """Shapley values of a forecast: how much each part of the state moves it away from its mean.

    `answer.drivers()` returns it. `text` is for people, `plot()` is a bar chart, `shap` is for the plots of
    the shap package. If `withheld` is not empty, there are no values, and it says why.
    """

    what: str
    """The forecast as text, for example `crash by step 15 after push left`."""
    names: tuple[str, ...] = ()
    """[group]: names of the groups of features"""
    shown: tuple[str, ...] = ()
    """[group]: the same with the values in the explained state"""
    values: FloatArray = field(default_factory=lambda: np.zeros(0))
    """[group]: Shapley values; they sum to `forecast - base`"""
    errors: FloatArray = field(default_factory=lambda: np.zeros(0))
    """[group]: standard errors due to the choice of background states, as if these were independent"""
    data: FloatArray = field(default_factory=lambda: np.zeros(0))
    """[group]: the value of the first feature of each group"""
    base: float = np.nan
    """The mean forecast over the visited states, after the same action."""
    forecast: float = np.nan
    """The forecast in the explained state."""
    unlike: float = np.nan
    """Fraction of mixed states that are unlike any visited state; NaN if a table tells what was tried."""
    background: int = 0
    """Number of visited states in the background."""
    probability: bool = True
    """Whether values are differences of probabilities, not of counts or other outcomes."""
    against: bool = False
    """Whether the forecast is the difference between fact and foil."""
    rolled_out: float | None = None
    """The same quantity by rollouts, if the simulator was used."""
    withheld: str = ""

    @property
    def shap(self) -> Any:
        """The same as `shap.Explanation` [group], for `shap.plots`."""
        import tpd.kernels.compiler  # noqa: F401  # shap imports numba, which would read untrusted settings

        if self.withheld:
            raise ValueError(self.text)
        try:
            import shap
        except ImportError as error:
            raise ImportError(MISSING) from error
        return shap.Explanation(
            values=self.values, base_values=self.base, data=self.data, feature_names=list(self.names)
        )

    @property
    def contradicted(self) -> bool:
        """Whether the forecast is farther from the rollouts than from its mean: then its error is larger than
        what the values explain.
        """
        if self.rolled_out is None:
            return False
        wrong = abs(self.rolled_out - self.forecast)
        return wrong > max(abs(self.forecast - self.base), WRONG if self.probability else 0.0)

    @property
    def text(self) -> str:
        """One or two sentences."""
        from tpd.answers.sentences.drivers import relies_on

        return relies_on(self)

    def plot(self) -> Any:
        """A matplotlib figure: a bar for each part of the state."""
        return draw(self, "drivers")

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f"<p style='max-width:60em'>{escape(self.text)}</p>"

    def __repr__(self) -> str:
        return f"<Drivers: {self.what}{', withheld' if self.withheld else ''}>"


def correlated_groups(rows: FloatArray, names: Sequence[str], threshold: float = CORRELATED) -> list[Group]:
    """Groups in which any two features are correlated, by complete linkage; rows [state, feature].

    Features with the same name always belong to one group.
    """
    from scipy.cluster.hierarchy import fcluster, linkage
    from scipy.spatial.distance import squareform

    first = {name: number for number, name in reversed(list(enumerate(names)))}
    owner = np.array([first[name] for name in names])
    singles = np.flatnonzero(owner == np.arange(len(names)))
    labels = np.arange(len(singles))
    if len(singles) > 1:
        apart = 1 - np.abs(_correlations(rows[:, singles]))
        labels = fcluster(linkage(squareform(apart, checks=False), "complete"), 1 - threshold, "distance")
    groups = list[Group]()
    for label in dict.fromkeys(labels.tolist()):
        members = singles[labels == label]
        groups.append(Group(_named([names[k] for k in members]), np.flatnonzero(np.isin(owner, members))))
    return groups


def _correlations(rows: FloatArray) -> FloatArray:
    """[feature, feature]: correlations; 0 if a feature is constant."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.asarray(np.nan_to_num(np.corrcoef(rows.T)))
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip((found + found.T) / 2, -1, 1))


def _named(names: Sequence[str]) -> str:
    if len(names) <= FEW:
        return " and ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


class Plan(NamedTuple):
    """How the Shapley values are computed."""

    exact: bool
    """Whether all coalitions are evaluated, not sampled permutations."""
    background: int
    """Number of background states."""


def plan(groups: int, simulated: bool) -> Plan:
    """A plan with roughly `SAMPLES` mixed states, or `SIMULATED_SAMPLES` if forecasts are simulated."""
    samples = SIMULATED_SAMPLES if simulated else SAMPLES
    exact = groups <= MOST_EXACT and 2**groups * LEAST_BACKGROUND <= samples
    coalitions = 2**groups if exact else PERMUTATIONS * (groups + 1)
    return Plan(exact, int(np.clip(samples // coalitions, LEAST_BACKGROUND, MOST_BACKGROUND)))


def mixtures(state: FloatArray, background: FloatArray, groups: Sequence[Group], rng: Rng) -> FloatArray:
    """[sample, feature]: random mixtures of a state with background states, at least one group of each."""
    count = len(groups)
    if count < 2:
        return background[:0]
    order = rng.permuted(np.tile(np.arange(count), (COMPARED, 1)), axis=1)
    kept = order < rng.integers(1, count, size=(COMPARED, 1))
    others = background[rng.integers(len(background), size=COMPARED)]
    return np.where(_of_features(kept, groups, len(state)), state, others)


def _of_features(coalitions: BoolArray, groups: Sequence[Group], features: int) -> BoolArray:
    """[coalition, feature]: coalitions of groups expanded to features."""
    kept = np.zeros((len(coalitions), features), dtype=np.bool_)
    for number, group in enumerate(groups):
        kept[:, group.columns] = coalitions[:, [number]]
    return kept


class Shapley(NamedTuple):
    """Shapley values of groups of features, over the background states with known forecasts."""

    values: FloatArray
    """[group]; NaN if too few background states are left"""
    errors: FloatArray
    """[group]"""
    base: float
    forecast: float
    background: int
    """Number of background states that were not left out."""


def shapley(
    forecast: Forecast,
    state: FloatArray,
    background: FloatArray,
    groups: Sequence[Group],
    rng: Rng,
    exact: bool = True,
) -> Shapley:
    """Shapley values of groups of features of a state [feature] against a background [state, feature].

    They use all coalitions, or sampled permutations of the groups. Values are computed for each background
    state separately: their mean is the value, their spread gives its error. A background state is left out if
    the forecast of any of its mixtures is unknown.
    """

    def worth(coalitions: BoolArray) -> FloatArray:
        """[coalition, background]: the forecast of each mixed state."""
        mixed = np.where(_of_features(coalitions, groups, len(state))[:, None], state, background)
        rows, place = np.unique(mixed.reshape(-1, len(state)), axis=0, return_inverse=True)
        return forecast(rows)[place.reshape(-1)].reshape(mixed.shape[:2])

    width = len(groups)
    values = exact_values(worth, width) if exact else sampled_values(worth, width, rng)
    known = ~np.isnan(values).any(axis=0)
    count = int(known.sum())
    if count < LEAST_BACKGROUND:
        nothing = np.full(width, np.nan)
        return Shapley(nothing, nothing, np.nan, np.nan, count)
    values, ends = values[:, known], worth(np.array([[False] * width, [True] * width]))
    base, here = ends[:, known].mean(axis=1)
    error = values.std(axis=1, ddof=1) / np.sqrt(count)
    return Shapley(values.mean(axis=1), error, float(base), float(here), count)


def share_unlike(mixed: FloatArray, met: FloatArray, episode: IntArray, rng: Rng) -> float:
    """The fraction of mixed states [sample, feature] that are unlike the visited ones [state, feature].

    A state is unlike them if its nearest visited state is farther away than a limit. Half of the episodes are
    the reference. Each other episode has a state that is farthest from the reference; the median of these
    distances is the limit, so no single odd episode determines it. Features are divided by their standard
    deviations. NaN with too few episodes.
    """
    from scipy.spatial import cKDTree

    numbers, episode = np.unique(episode, return_inverse=True)
    if len(numbers) < LEAST_EPISODES:
        return np.nan
    spread = met.std(axis=0)
    scale, half = np.where(spread > 0, spread, 1.0), episode % 2 == 0
    tree = cKDTree(_some(met[half], REFERENCE, rng) / scale)
    others, number = met[~half], episode[~half]
    real = tree.query(others / scale)[0]
    limit = np.median([real[number == each].max() for each in np.unique(number)])
    far = tree.query(_some(mixed, COMPARED, rng) / scale)[0]
    return float((far > limit + 1e-9).mean())


def _some(rows: FloatArray, count: int, rng: Rng) -> FloatArray:
    return rows if len(rows) <= count else rows[rng.choice(len(rows), count, replace=False)]
