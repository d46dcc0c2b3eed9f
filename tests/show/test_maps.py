"""Maps: every state is where its fields say, and what is unknown is hatched."""

from collections.abc import Callable

import numpy as np
import pytest
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from tpd.answers.resolve import resolve
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, FloatArray
from tpd.envs import Environment
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.run.parts import Parts
from tpd.show import maps
from tpd.show.atlas import Atlas, MapSpec, known_from, threshold

FIELDS = {"across": "col", "down": "row", "panels": "fuel", "pages": "passenger"}
SPEC = MapSpec(**FIELDS)


class NeverEmpty(ExactSolution):
    """Nothing was tried in states without fuel."""

    def support(self, observations: Array, actions: Array) -> FloatArray:
        return np.where(observations // 2 % 21 == 0, 0, super().support(observations, actions))


@pytest.fixture
def explainer(paper: Parts, fuel_taxi: Environment) -> Explainer:
    assert fuel_taxi.model is not None
    outcomes = OutcomeSet(paper.outcomes.outcomes, True, True, first=["refuel", "dropoff"])
    policy = resolve(fuel_taxi.model, outcomes, {}, 0.99)
    return Explainer(NeverEmpty(fuel_taxi, policy, outcomes, horizon=30), policy, outcomes.legend)


def test_every_state_is_where_its_fields_say(explainer: Explainer, fuel_taxi: Environment) -> None:
    atlas = Atlas.explore(explainer, fuel_taxi, SPEC)
    states = atlas.explanation.observations.reshape(atlas.shape)
    assert atlas.shape == (2, 21, 5, 5)
    assert states[1, 7, 2, 3] == fuel_taxi.state({"row": 2, "col": 3, "fuel": 7, "passenger": True})
    assert len(np.unique(states)) == 1050


def test_what_is_mapped_is_what_is_explained(explainer: Explainer, fuel_taxi: Environment) -> None:
    atlas = Atlas.explore(explainer, fuel_taxi, SPEC)
    place = {"row": 4, "col": 1, "fuel": 9, "passenger": False}
    own = explainer.explain(fuel_taxi.state(place)[None])
    steps = own.expected[0, :, own.legend.names.index("first dropoff")]
    assert atlas.likely("first dropoff")[0, 9, 4, 1] == pytest.approx(steps.sum())
    assert atlas.steps_to("first dropoff")[0, 9, 4, 1] == pytest.approx(steps @ np.arange(30) / steps.sum())


def test_the_unknown_is_never_a_number(explainer: Explainer, fuel_taxi: Environment) -> None:
    atlas = Atlas.explore(explainer, fuel_taxi, SPEC)
    for values in (atlas.likely("first refuel"), atlas.steps_to("first dropoff")):
        assert np.isnan(values[:, 0]).all()
    assert not np.isnan(atlas.likely("first refuel")[:, 1:]).any()


@pytest.mark.parametrize("draw", [maps.likely_map, maps.steps_map])
def test_the_unknown_is_hatched(
    draw: Callable[[Atlas, str], Figure], explainer: Explainer, fuel_taxi: Environment
) -> None:
    figure = draw(Atlas.explore(explainer, fuel_taxi, SPEC), "first dropoff")
    for axes in figure.axes[:2]:
        hatched = [drawn for drawn in axes.collections if drawn.get_hatch()]
        assert [len(drawn.get_paths()) for drawn in hatched] == [25]


def test_a_square_is_as_large_as_the_event_is_likely(explainer: Explainer, fuel_taxi: Environment) -> None:
    atlas = Atlas.explore(explainer, fuel_taxi, SPEC)
    likely, ahead = atlas.likely("first dropoff")[0], atlas.steps_to("first dropoff")[0]
    squares = maps.steps_map(atlas, "first dropoff").axes[0].collections[-1]
    assert isinstance(squares, PolyCollection)
    np.testing.assert_allclose(np.asarray(squares.get_array()), ahead[~np.isnan(ahead)])
    sides = np.array([np.ptp(np.asarray(path.vertices)[:, 0]) for path in squares.get_paths()])
    np.testing.assert_allclose((sides / maps.FULL_SQUARE) ** 2, likely[~np.isnan(ahead)], atol=1e-9)


def test_a_threshold_is_where_it_turns_for_good() -> None:
    assert threshold(np.array([0.0, 0.9, 0.9, 0.4, 0.1])) == 3
    assert threshold(np.array([0.9, 0.1, 0.8, 0.9])) == 2
    assert threshold(np.array([0.1, 0.2])) is None


def test_no_threshold_is_read_through_the_unknown() -> None:
    nan = np.nan
    assert known_from(np.array([0.1, 0.2, 0.3, 0.4])) == 0
    assert known_from(np.array([nan, 0.2, 0.3, 0.4])) == 1
    assert known_from(np.array([0.1, 0.2, nan, 0.4])) is None
    assert known_from(np.array([0.1, 0.2, 0.3, nan])) is None
    assert known_from(np.array([nan, nan])) is None


def test_the_fuel_threshold_can_be_read(explainer: Explainer, fuel_taxi: Environment) -> None:
    figures = maps.draw(explainer, fuel_taxi, SPEC)
    assert list(figures) == [
        "refuel_likely",
        "refuel_threshold",
        "dropoff_likely",
        "dropoff_threshold",
        "dropoff_steps",
    ]
    numbers = {text.get_position(): text.get_text() for text in figures["refuel_threshold"].axes[0].texts}
    least = int(numbers[2, 2])
    refuels = Atlas.explore(explainer, fuel_taxi, SPEC).likely("first refuel")[0, :, 2, 2]
    assert (refuels[least:] <= 0.5).all()
    assert refuels[least - 1] > 0.5


@pytest.mark.parametrize(
    ("config", "culprit"),
    [
        (FIELDS | {"panels": "petrol"}, "petrol"),
        ({"across": "col", "down": "row"}, "fuel"),
        (FIELDS | {"rows": "row"}, "rows"),
        ({"panels": "fuel"}, "across"),
    ],
)
def test_a_map_of_other_fields_is_refused(
    config: dict[str, str], culprit: str, fuel_taxi: Environment
) -> None:
    with pytest.raises(ValueError, match=culprit):
        MapSpec.from_config(config, fuel_taxi)


def test_no_map_is_drawn_where_none_is_asked_for(fuel_taxi: Environment) -> None:
    assert MapSpec.from_config({}, Environment("FrozenLake-v1")) is None
    assert MapSpec.from_config({}, fuel_taxi) == SPEC
    assert MapSpec.from_config(FIELDS, fuel_taxi) == SPEC
