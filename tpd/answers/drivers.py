"""What a forecast relies on: Shapley values of the parts of a state, against states that the agent meets.

They say how the forecast, as a function, depends on its inputs, not what causes the event. A coalition is a
set of features that keep their values in the state explained; the others take those of a state met
(interventional Shapley values). So the function is asked about states that nobody met, and where too many of
them are unlike any, nothing is said.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from tpd.answers.sentences.learned import WRONG
from tpd.answers.shapley import PERMUTATIONS, exact_values, sampled_values
from tpd.core.drawing import draw
from tpd.core.types import BoolArray, FloatArray, IntArray

CORRELATED = 0.9
"""Features whose |correlation| over the states met is larger go together: nobody meets them apart."""
MOST_EXACT = 10
"""Groups of features up to which all coalitions are asked about; for more, permutations are sampled."""
FEW = 3
"""Features of a group that are all named."""
SAMPLES, SIMULATED_SAMPLES = 25_000, 1000
"""Mixed states that are asked about, roughly; fewer where every forecast is simulated."""
MOST_BACKGROUND, LEAST_BACKGROUND = 1000, 10
MOST_UNLIKE = 0.5
"""Share of mixed states that may be farther from the states met than any state of a typical episode: with
more, the values are averages over what mostly does not happen."""
LEAST_EPISODES = 4
"""To tell which states are unlike those met."""
MOST_LEFT_OUT = 0.5
"""Share of the states met that may be left out, because an action is not valid in a mixture, or was never
tried: more, and what is left are no longer the states that the agent meets."""
COMPARED, REFERENCE = 2000, 5000
"""Mixed states of which distances are measured, and to how many states met."""

MISSING = "shap.Explanation is of the package shap, which is not installed: pip install 'tpd[drivers]'"

Forecast = Callable[[FloatArray], FloatArray]
"""rows [batch, feature] -> [batch]; NaN where it is not known"""


class Group(NamedTuple):
    """Features that are only ever taken together."""

    name: str
    columns: IntArray


@dataclass(frozen=True, repr=False, eq=False)
class Drivers:
    """What a forecast relies on: how much each part of the state moves it away from its mean.

    `answer.drivers()` gives it. `text` is for people, `plot()` a bar chart, `shap` for the plots of the shap
    package. Where `withheld` is not empty, it says why there are no values.
    """

    what: str
    """The forecast in words, for example `crash by step 15 after push left`."""
    names: tuple[str, ...] = ()
    """[group]: what each group of features is called"""
    shown: tuple[str, ...] = ()
    """[group]: the same with the values in the state explained"""
    values: FloatArray = field(default_factory=lambda: np.zeros(0))
    """[group]: Shapley values; they add up to `forecast - base`"""
    errors: FloatArray = field(default_factory=lambda: np.zeros(0))
    """[group]: standard errors of these, by the choice of the states met, as if these were independent"""
    data: FloatArray = field(default_factory=lambda: np.zeros(0))
    """[group]: the value of the feature, the first one of a group"""
    base: float = np.nan
    """The mean forecast after the same action over the states met."""
    forecast: float = np.nan
    """In the state explained."""
    unlike: float = np.nan
    """The share of mixed states that are unlike any state met; NaN where a table knows what was tried."""
    background: int = 0
    """How many states met it is compared with."""
    probability: bool = True
    """Whether values are differences of probabilities, and not of counts or other outcomes."""
    against: bool = False
    """Whether the forecast is how much the fact differs from the foil."""
    rolled_out: float | None = None
    """What rollouts of the simulator say instead of the forecast, where it was asked."""
    withheld: str = ""

    @property
    def shap(self) -> Any:
        """The same as `shap.Explanation` [group], for `shap.plots`."""
        import tpd.kernels.compiler  # noqa: F401  # shap imports numba, which would read settings of strangers

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
        """Whether rollouts are farther from the forecast than that is from its mean: then the values explain
        less than what is wrong with it.
        """
        if self.rolled_out is None:
            return False
        wrong = abs(self.rolled_out - self.forecast)
        return wrong > max(abs(self.forecast - self.base), WRONG if self.probability else 0.0)

    @property
    def text(self) -> str:
        """In a sentence or two."""
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

    Features of the same name belong together whatever they are.
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
    """[feature, feature]; 0 where a feature never varies."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.asarray(np.nan_to_num(np.corrcoef(rows.T)))
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip((found + found.T) / 2, -1, 1))


def _named(names: Sequence[str]) -> str:
    if len(names) <= FEW:
        return " and ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


class Plan(NamedTuple):
    """How many forecasts are asked for."""

    exact: bool
    """Whether all coalitions are asked about, and not sampled permutations."""
    background: int
    """How many states met the state is mixed with."""


def plan(groups: int, simulated: bool) -> Plan:
    """So that roughly `SAMPLES` mixed states are asked about, or fewer where forecasts are simulated."""
    samples = SIMULATED_SAMPLES if simulated else SAMPLES
    exact = groups <= MOST_EXACT and 2**groups * LEAST_BACKGROUND <= samples
    coalitions = 2**groups if exact else PERMUTATIONS * (groups + 1)
    return Plan(exact, int(np.clip(samples // coalitions, LEAST_BACKGROUND, MOST_BACKGROUND)))


def mixtures(
    state: FloatArray, background: FloatArray, groups: Sequence[Group], rng: np.random.Generator
) -> FloatArray:
    """[sample, feature]: random mixtures of a state with background states, of at least one group of each."""
    count = len(groups)
    if count < 2:
        return background[:0]
    order = rng.permuted(np.tile(np.arange(count), (COMPARED, 1)), axis=1)
    kept = order < rng.integers(1, count, size=(COMPARED, 1))
    others = background[rng.integers(len(background), size=COMPARED)]
    return np.where(_of_features(kept, groups, len(state)), state, others)


def _of_features(coalitions: BoolArray, groups: Sequence[Group], features: int) -> BoolArray:
    """[coalition, feature]: coalitions of groups as those of their features."""
    kept = np.zeros((len(coalitions), features), dtype=np.bool_)
    for number, group in enumerate(groups):
        kept[:, group.columns] = coalitions[:, [number]]
    return kept


class Shapley(NamedTuple):
    """Shapley values of groups of features, against background states of which enough is known."""

    values: FloatArray
    """[group]; NaN where too little is known"""
    errors: FloatArray
    """[group]"""
    base: float
    forecast: float
    background: int
    """How many background states were not left out."""


def shapley(
    forecast: Forecast,
    state: FloatArray,
    background: FloatArray,
    groups: Sequence[Group],
    rng: np.random.Generator,
    exact: bool = True,
) -> Shapley:
    """Shapley values of groups of features of a state [feature] against a background [state, feature].

    Over all coalitions, or over sampled permutations of the groups. The game is played against every
    background state apart: the mean is the value, their spread its error. A background state is left out if
    the forecast of any of its mixtures is not known.
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
    return Shapley(
        values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(count), float(base), float(here), count
    )


def share_unlike(mixed: FloatArray, met: FloatArray, episode: IntArray, rng: np.random.Generator) -> float:
    """The share of mixed states [sample, feature] that are unlike those met [state, feature]: farther from
    the nearest one than any state of a typical other episode is.

    Half of the episodes are the reference. Of the others each has a farthest state; the median of these
    distances is the limit, so that no single odd episode sets it. Features are divided by their standard
    deviations. NaN where there are too few episodes to tell.
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


def _some(rows: FloatArray, count: int, rng: np.random.Generator) -> FloatArray:
    return rows if len(rows) <= count else rows[rng.choice(len(rows), count, replace=False)]
