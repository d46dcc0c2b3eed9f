"""Explanations in a notebook: tidy tables, and HTML that shows what it holds and runs nothing."""

import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.support import small_mdp
from tpd.core.colours import PALETTE, colour, rounds
from tpd.core.explanation import Explanation
from tpd.core.formats import percent
from tpd.core.outcomes import FIRST, Legend
from tpd.core.sections import MOST_SHOWN
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer

HORIZON = 4


@pytest.fixture
def explanation() -> Explanation:
    policy, outcomes = small_mdp.policy(), small_mdp.outcomes()
    solution = ExactSolution(small_mdp.environment(), policy, outcomes, horizon=HORIZON)
    return Explainer(solution, policy, outcomes.legend).explain(np.arange(6))


class Cells(HTMLParser):
    """The cells of all strips, in order, and every tag."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells = list[dict[str, str | None]]()
        self.tags = set[str]()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        if tag == "i":
            self.cells.append(dict(attrs))


def test_a_frame_has_every_expectation_once(explanation: Explanation) -> None:
    frame = explanation.to_frame()
    assert list(frame) == ["pair", "state", "action", "step", "outcome", "expected", "unknown", "support"]
    assert len(frame) == explanation.expected.size
    for pair, step, k in np.ndindex(explanation.expected.shape):
        name = explanation.legend.names[k]
        (row,) = frame[
            (frame["pair"] == pair) & (frame["step"] == step) & (frame["outcome"] == name)
        ].itertuples()
        assert row.expected == explanation.expected[pair, step, k]
        assert (row.state, row.action) == (explanation.observations[pair], explanation.actions[pair])
        assert row.support == np.inf


def test_a_contrast_has_fact_foil_and_difference(explanation: Explanation) -> None:
    fact, foil = explanation[:2], explanation[2:4]
    frame = (fact - foil).to_frame()
    np.testing.assert_array_equal(frame["fact"] - frame["foil"], frame["difference"])
    np.testing.assert_array_equal(frame["fact"], fact.to_frame()["expected"])
    np.testing.assert_array_equal(frame["foil_state"], foil.to_frame()["state"])
    np.testing.assert_array_equal(frame["foil_action"], foil.to_frame()["action"])


def test_observations_and_actions_of_several_numbers_fit_a_frame(explanation: Explanation) -> None:
    wide = replace(explanation, observations=np.zeros((6, 3)), actions=np.arange(12.0).reshape(6, 2))
    frame = wide.to_frame()
    assert "state" not in frame
    assert frame["action"][0] == (0.0, 1.0)
    assert "state (0, 0, 0): action (0, 1)" in wide._repr_html_()


def test_cells_show_the_probabilities_in_the_colours_of_the_outcomes(explanation: Explanation) -> None:
    shown = Cells(explanation._repr_html_()).cells
    names = explanation.legend.names
    assert len(shown) == MOST_SHOWN * HORIZON * len(names)
    cells = iter(shown)
    for pair in range(MOST_SHOWN):
        for k, name in enumerate(names):
            for step in range(HORIZON):
                value, cell = explanation.expected[pair, step, k], next(cells)
                assert cell["title"] == f"step {step}: {percent(value)}"
                assert cell["style"] == f"background-color:{colour(names, name)}{round(255 * value):02x}"
    assert f"and {6 - MOST_SHOWN} more" in explanation._repr_html_()


def test_the_unknown_is_hatched_and_has_no_numbers(explanation: Explanation) -> None:
    untried = replace(explanation[:1], support=np.zeros(1))
    cells = Cells(untried._repr_html_()).cells
    assert {cell["class"] for cell in cells} == {"unknown"}
    assert "never tried: unknown" in untried._repr_html_()
    assert "at step" not in untried._repr_html_()
    assert "<td>never</td>" not in untried._repr_html_()
    partly = replace(explanation[:1], unknown=np.array([[0, 0, 0.5, 0.5]]))
    classes = [cell.get("class") for cell in Cells(partly._repr_html_()).cells[:HORIZON]]
    assert classes == [None, None, "unknown", "unknown"]


def test_a_contrast_tells_gains_from_losses(explanation: Explanation) -> None:
    contrast = explanation[:1] - explanation[1:2]
    cells = Cells(contrast._repr_html_()).cells
    gains = contrast.expected[0].T.ravel() > 0
    assert gains.any()
    assert not gains.all()
    assert [cell["class"] == "up" for cell in cells] == gains.tolist()


def test_names_are_escaped(explanation: Explanation) -> None:
    names = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "first <b>")
    hostile = replace(explanation, legend=Legend(names, (1.0, 0.0, None), (), None, names))
    for text in (hostile._repr_html_(), (hostile - hostile)._repr_html_()):
        assert not Cells(text).tags & {"script", "img"}
        assert "&lt;script&gt;" in text


def test_no_two_outcomes_have_one_colour() -> None:
    names = [f"outcome {i}" for i in range(60)]
    assert len({colour(names, name) for name in names}) == len(names)
    assert colour([*names, f"{FIRST}{names[3]}"], f"{FIRST}{names[3]}") == colour(names, names[3])
    assert (rounds(names, names[0]), rounds(names, names[len(PALETTE)])) == (0, 1)


def test_a_rendering_needs_no_matplotlib() -> None:
    code = "import sys, tpd.core.explanation; sys.exit('matplotlib' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
