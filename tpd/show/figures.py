"""Figures: the state-action pairs that each shows, from the config to the drawn page."""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from tpd.answers.answer import return_row
from tpd.answers.foil import OPPOSITE, POLICY, RUNNER_UP, chosen
from tpd.answers.sentences.describe import not_told
from tpd.answers.sentences.summary import PairSummaries, PairSummary
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation
from tpd.core.types import Array, Policy
from tpd.envs import Environment
from tpd.guards.settings import boolean
from tpd.predictors.explainer import Explainer
from tpd.show import endless_plots, plots
from tpd.show.figure_notes import disagreement, remarks
from tpd.sources import named_states
from tpd.sources.named_states import START, NamedState, NamedStateDescription

CHARACTERS_PER_COLUMN, TITLE_WIDTH = 77, 62
LATER = {"episode": 0, "step": 50}


def figures_from_config(figures: DictConfig, env: Environment) -> "tuple[FigureSpec, ...]":
    """The figures of a config, or default ones if it has none."""
    wanted = OmegaConf.to_container(figures, resolve=True) or default_figures(env)
    return tuple(FigureSpec.from_config(str(name), env, **spec) for name, spec in dict(wanted).items())  # type: ignore[arg-type]


def default_figures(env: Environment) -> dict[str, Any]:
    """The policy's action and another one at the start and, if states have no names, at a later step."""
    if not env.playable:
        return {}
    foil = RUNNER_UP if _has_choices(env) else OPPOSITE
    states: dict[str, Any] = {"start": START} if env.tabular else {"start": START, "later": LATER}
    return {
        name: {"pairs": [{"state": state}, {"state": state, "action": foil}], "contrast": True}
        for name, state in states.items()
    }


def _has_choices(env: Environment) -> bool:
    """Whether there is a second best action: the actions are discrete, or consist of parts."""
    return env.discrete or env.parts is not None


@dataclass(frozen=True)
class FigureSpec:
    """State-action pairs to explain side by side.

    Each pair names a state and an action. An action is given by name or numbers, or as `policy` (the agent's
    action), `runner_up` (the best other valid action) or, for continuous actions, `opposite` (mirrored within
    the bounds; a bound if it is near the middle).
    """

    name: str
    states: tuple[NamedStateDescription, ...]
    actions: tuple[Any, ...]
    contrast: bool = False
    """Whether to show the difference between the first and the second pair, too."""

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @classmethod
    def from_config(
        cls, name: str, env: Environment, pairs: Sequence[Mapping[str, Any]], contrast: bool = False
    ) -> "FigureSpec":
        """Resolve names; unknown ones are refused."""
        boolean("contrast", contrast)
        if Path(name).name != name:
            raise ValueError(f"figure {name!r}: the name must be a file name without /")
        if not pairs or (contrast and len(pairs) != 2):
            raise ValueError(
                f"figure {name!r} has {len(pairs)} pairs; contrast=true needs 2, other figures at least 1"
            )
        states, actions = [], []
        for pair in pairs:
            if "state" not in pair or set(pair) - {"state", "action"}:
                raise ValueError(f"figure {name!r}: a pair must have a state and an action, got {dict(pair)}")
            named_states.check(env, pair["state"])
            states.append(pair["state"])
            action = pair.get("action", POLICY)
            relative = (POLICY, RUNNER_UP if _has_choices(env) else OPPOSITE)
            actions.append(action if action in relative else env.action(action))
        return cls(name, tuple(states), tuple(actions), contrast)

    def find_states(self, env: Environment, policy: Policy) -> "list[NamedState]":
        """The state of each pair; pairs in the same state share it."""
        found: dict[str, NamedState] = {}
        for state in self.states:
            if repr(state) not in found:
                found[repr(state)] = named_states.find(env, policy, state)
        return [found[repr(state)] for state in self.states]

    def explain(
        self, explainer: Explainer, env: Environment, found: "Sequence[NamedState] | None" = None
    ) -> Explanation:
        """The explanations of all pairs, in order; `found` are their states, if they were found before."""
        found = found or self.find_states(env, explainer.policy)
        observations = np.concatenate([state.observation for state in found])
        actions = [
            chosen(explainer, env, state.observation, action)
            for state, action in zip(found, self.actions, strict=True)
        ]
        return explainer.explain(observations, np.stack(actions), draws=ENOUGH_DRAWS)

    def draw(self, explainer: Explainer, env: Environment, subtitle: str) -> tuple[Figure, Explanation]:
        """Draw the page, with one column per pair (state, events, rewards); also returns the explanation."""
        found = self.find_states(env, explainer.policy)
        explanation = self.explain(explainer, env, found)
        actions = [env.name_of_action(action) for action in explanation.actions]
        figure = page(
            f"{self.title}, {subtitle}",
            explanation,
            [f"{state.name}: {action}" for state, action in zip(found, actions, strict=True)],
            [state.picture for state in found],
            self._notes(explanation, explainer, env, found),
            f"{actions[0]} minus {actions[1]}" if self.contrast else None,
        )
        return figure, explanation

    def _notes(
        self, explanation: Explanation, explainer: Explainer, env: Environment, found: "Sequence[NamedState]"
    ) -> list[str]:
        """Sentences below the plots."""
        sentences, summaries = [], PairSummaries(explanation)
        for i, (state, action) in enumerate(zip(found, explanation.actions, strict=True)):
            pair = f"{state.name}, {env.name_of_action(action)}"
            sentences.append(f"{pair}: {'; '.join(remarks(explanation, i))}")
        names = map(env.name_of_action, explanation.actions)
        untold = not_told(*(PairSummary(summaries, i, name) for i, name in enumerate(names)))
        different = {state.name: state for state in found}.values()
        contradictions = (disagreement(explainer, env, state) for state in different)
        return [*sentences, *filter(None, [untold, *contradictions])]


def page(
    title: str,
    explanation: Explanation,
    names: Sequence[str],
    pictures: Sequence[Array | None],
    sentences: Sequence[str],
    difference: str | None = None,
) -> Figure:
    """One column per pair: its picture, the predicted outcomes, and the reward terms.

    difference: the name of the difference between the first two pairs, shown in a last row (probabilities and
        returns); None: no such row.
    """
    legend = explanation.legend
    rewarded = legend.reward_bound is not None
    panels = _panels(explanation)
    contrasted = difference is not None and rewarded
    width = CHARACTERS_PER_COLUMN * len(names)
    lines = [line for sentence in sentences for line in textwrap.wrap(sentence, width)]
    pictured = any(picture is not None for picture in pictures)
    rows = pictured + len(panels) + contrasted
    top = 0.7 if pictured else 1.1  # leaves room for panel titles
    figure, grid, below = plots.page(rows, len(names), len(lines), len(legend.names) + 3, top)
    if pictured:
        plots.pictures(grid[0], pictures)
    for i, name in enumerate(names):
        for row, panel in enumerate(panels, start=pictured):
            panel(grid[row][i], explanation, i)
            if i and explanation.endless:
                grid[row][i].sharex(grid[row][0])
            if i and (explanation.endless or panel is not panels[0]):
                grid[row][i].sharey(grid[row][0])
        grid[pictured][i].set_title(_title(name), fontsize=10)
    if contrasted:
        contrast, (left, right, *_) = explanation[:1] - explanation[1:2], grid[-1]
        if explanation.endless:
            endless_plots.panel(left, contrast, 0)
            left.set_title(_title(f"return over an infinite horizon: {difference}"), fontsize=10)
            right.axis("off")
        else:
            plots.return_difference(right, contrast, 0)
            plots.event_difference(left, contrast, 0)
            right.set_title(_title(f"{return_row(explanation)} of {difference}"), fontsize=10)
            left.set_title(_title(f"probabilities of {difference}"), fontsize=10)
    if not explanation.endless:
        plots.key(figure, explanation)
    plots.notes(below, lines)
    figure.suptitle(title, fontsize=13)
    return figure


def _panels(explanation: Explanation) -> list[Callable[[Axes, Explanation, int], None]]:
    """What is drawn for each pair, from the top."""
    legend = explanation.legend
    if explanation.endless:
        return [endless_plots.panel]
    panels: list[Callable[[Axes, Explanation, int], None]] = [
        plots.events if legend.partition else plots.outcomes
    ]
    if plots.first_names(explanation):
        panels.append(plots.happened_by)
    if plots.other_names(explanation):
        panels.append(plots.other_outcomes)
    if legend.reward_bound is not None:
        panels.append(plots.reward_components)
    return panels


def _title(text: str) -> str:
    """Wrap a title to the width of one column."""
    return textwrap.fill(text, TITLE_WIDTH)
