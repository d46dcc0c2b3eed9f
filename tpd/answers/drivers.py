"""What a forecast relies on: Shapley values of the parts of a state, against states that the agent meets.

They say how the forecast, as a function, depends on its inputs, not what causes the event. A coalition is a
set of features that keep their values in the state explained; the others take those of a state met
(interventional Shapley values). So the function is asked about states that nobody met, and where too many of
them are unlike any, nothing is said.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tpd.core.drawing import draw
from tpd.core.types import Array, BoolArray, FloatArray, IntArray

CORRELATED = 0.9
"""Features whose |correlation| over the states met is larger are one: apart, they make states nobody meets."""
MOST_EXACT = 10
"""Groups of features up to which all coalitions are asked about; for more, permutations are sampled."""
PERMUTATIONS = 10
SAMPLES, SIMULATED_SAMPLES = 50_000, 2500
"""Mixed states that are asked about, roughly; fewer where every forecast is simulated."""
MOST_BACKGROUND, LEAST_BACKGROUND = 200, 10
REAL = 0.99
"""A mixed state is unlike the states met if it is farther from them than this share of other real states."""
MOST_UNLIKE = 0.2
"""Share of mixed states that may be unlike any state met. Of real states 1 % are. A Shapley value is a mean
of differences of forecasts, so with probabilities its error is at most twice the share of wrong ones."""
COMPARED, REFERENCE = 2000, 5000
"""States of which distances are measured, and to how many."""

MISSING = "what a forecast relies on is worked out by the package shap: pip install 'tpd[drivers]'"

Forecast = Callable[[FloatArray], FloatArray]
"""rows [batch, feature] -> [batch]; NaN where it is not known"""


class Group(NamedTuple):
    """Features that are only ever taken together."""

    name: str
    columns: IntArray


@dataclass(frozen=True, repr=False)
class Drivers:
    """What a forecast relies on: how much each part of the state moves it away from its mean.

    `answer.drivers()` gives it. `text` is for people, `shap` for the plots of the shap package, `plot()` a bar
    chart. Where `withheld` is not empty, it says why there are no values.
    """

    what: str
    """The forecast in words, for example `crash by step 15 after push left`."""
    names: tuple[str, ...] = ()
    """[group]: what each group of features is called"""
    values: FloatArray = None  # type: ignore[assignment]  # none where withheld
    """[group]: Shapley values; they add up to `forecast - base`"""
    errors: FloatArray = None  # type: ignore[assignment]
    """[group]: standard errors of these, by the choice of the states met"""
    data: FloatArray = None  # type: ignore[assignment]
    """[group]: the value of the feature, the first one of a group"""
    base: float = np.nan
    """The mean forecast after the same action over the states met."""
    forecast: float = np.nan
    """In the state explained."""
    unlike: float = np.nan
    """The share of mixed states that are unlike any state met."""
    probability: bool = True
    """Whether values are differences of probabilities, and not of counts or other outcomes."""
    against: bool = False
    """Whether the forecast is how much the fact differs from the foil."""
    withheld: str = ""

    def __post_init__(self) -> None:
        for name in ("values", "errors", "data"):
            if getattr(self, name) is None:
                object.__setattr__(self, name, np.zeros(0))

    @property
    def shap(self) -> Any:
        """The same as `shap.Explanation` [group], for `shap.plots`."""
        if self.withheld:
            raise ValueError(self.text)
        return require_shap().Explanation(
            values=self.values, base_values=self.base, data=self.data, feature_names=list(self.names)
        )

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

    def __repr__(self) -> str:
        return f"<Drivers: {self.what}{', withheld' if self.withheld else ''}>"


def require_shap() -> Any:
    """The package, imported only when it is needed; an ImportError names the extra that has it."""
    import tpd.kernels.compiler  # noqa: F401  # first: shap imports numba, which reads settings of a stranger

    try:
        import shap
    except ImportError as error:
        raise ImportError(MISSING) from error
    return shap


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
        found = np.nan_to_num(np.corrcoef(rows.T))
    np.fill_diagonal(found, 1.0)
    return np.asarray(np.clip((found + found.T) / 2, -1, 1))


def _named(names: Sequence[str]) -> str:
    if len(names) <= 3:
        return " and ".join(names)
    return f"{names[0]}, {names[1]} and {len(names) - 2} more"


class Mixed(NamedTuple):
    """What is found of a state by mixing it with others."""

    values: FloatArray
    """[group]"""
    errors: FloatArray
    """[group]"""
    base: float
    forecast: float
    rows: FloatArray
    """[sample, feature]: the mixed states, each once"""
    unknown: float
    """The share of mixed states whose forecast is not known."""


def background_size(groups: int, simulated: bool) -> int:
    """States met to mix with, so that roughly so many mixed states are asked about."""
    samples = SIMULATED_SAMPLES if simulated else SAMPLES
    return int(np.clip(samples // _coalitions(groups), LEAST_BACKGROUND, MOST_BACKGROUND))


def _coalitions(groups: int) -> int:
    return 2**groups if groups <= MOST_EXACT else PERMUTATIONS * (2 * groups + 1)


def shapley(forecast: Forecast, state: FloatArray, background: FloatArray, groups: Sequence[Group]) -> Mixed:
    """Shapley values of groups of features of a state [feature] against a background [state, feature].

    Exact over all coalitions of up to `MOST_EXACT` groups, by sampled permutations of more. The game is
    played against every background state apart: the mean is the value, their spread its error. Mixed states
    whose forecast is not known count as the mean of the others.
    """
    shap = require_shap()
    asked, width = _Asked(forecast, state, background, groups), len(groups)
    masker = shap.maskers.Independent(np.zeros((1, width)))
    if width <= MOST_EXACT:
        explainer = shap.explainers.Exact(asked.played, masker)
        found = explainer(np.ones((1, width)), batch_size=2**width, silent=True)
    else:
        explainer = shap.explainers.Permutation(asked.played, masker, seed=0)
        count = _coalitions(width)
        found = explainer(np.ones((1, width)), max_evals=count, batch_size=count, silent=True)
    values = np.asarray(found.values)[0].reshape(width, len(background))
    ends = asked.played(np.array([[0.0], [1.0]]) * np.ones(width))
    return Mixed(
        values.mean(axis=1),
        values.std(axis=1, ddof=1) / np.sqrt(len(background)),
        float(ends[0].mean()),
        float(ends[1].mean()),
        np.concatenate(asked.rows),
        asked.unknown / asked.count,
    )


class _Asked:
    """The game of coalitions: its worth against every background state, and which states were asked about."""

    def __init__(
        self, forecast: Forecast, state: FloatArray, background: FloatArray, groups: Sequence[Group]
    ) -> None:
        self._forecast = forecast
        self._state = state
        self._background = background
        self._groups = groups
        self.rows = list[FloatArray]()
        self.unknown, self.count = 0, 0

    def played(self, coalitions: FloatArray) -> FloatArray:
        """[coalition, background]: the forecast of each mixed state; coalitions [coalition, group] of 0, 1."""
        kept = np.zeros((len(coalitions), len(self._state)), dtype=np.bool_)
        for number, group in enumerate(self._groups):
            kept[:, group.columns] = coalitions[:, [number]] > 0.5
        mixed = np.where(kept[:, None], self._state, self._background)
        rows, place = np.unique(mixed.reshape(-1, len(self._state)), axis=0, return_inverse=True)
        worth = self._forecast(rows)[place.reshape(-1)]
        self.rows.append(rows)
        unknown = np.isnan(worth)
        self.unknown, self.count = self.unknown + int(unknown.sum()), self.count + len(worth)
        rest = float(worth[~unknown].mean()) if not unknown.all() else 0.0
        return np.where(unknown, rest, worth).reshape(len(coalitions), len(self._background))


def share_unlike(
    mixed: FloatArray, met: FloatArray, episode: IntArray, rng: np.random.Generator
) -> float:
    """The share of mixed states [sample, feature] that are farther from the states met than real ones are.

    Half of the episodes are the reference; how far real states lie from it is known by the other half.
    Features are divided by their standard deviation.
    """
    from scipy.spatial import cKDTree

    half = _half(episode)
    scale = met.std(axis=0)
    scale = np.where(scale > 0, scale, 1.0)
    tree = cKDTree(_some(met[half], REFERENCE, rng) / scale)
    real = tree.query(_some(met[~half], COMPARED, rng) / scale)[0]
    far = tree.query(_some(mixed, COMPARED, rng) / scale)[0]
    return float((far > np.quantile(real, REAL) + 1e-9).mean())


def _half(episode: IntArray) -> BoolArray:
    """[state]: those of every second episode; of every second state, where there is one episode only."""
    numbers = np.unique(episode, return_inverse=True)[1]
    return np.asarray((numbers if numbers.any() else np.arange(len(episode))) % 2 == 0)


def _some(rows: Array, count: int, rng: np.random.Generator) -> Array:
    return rows if len(rows) <= count else rows[rng.choice(len(rows), count, replace=False)]
