"""Scenes: the states and actions that a figure shows, from a config to a drawn page."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from omegaconf import DictConfig, OmegaConf

from tpd.checks import boolean
from tpd.envs import Environment
from tpd.explainer import Explainer
from tpd.explanation import Explanation
from tpd.show import plots
from tpd.show.remarks import disagreement, remarks

POLICY = "policy"
RUNNER_UP = "runner_up"
CHARACTERS_PER_COLUMN = 82
DEFAULT_SCENES = {
    "start": {"pairs": [{"state": "start"}, {"state": "start", "action": RUNNER_UP}], "contrast": True}
}


def scenes_from_config(figures: DictConfig, env: Environment) -> "tuple[Scene, ...]":
    """The scenes that a config asks for, or a look at the start where it asks for none."""
    wanted = OmegaConf.to_container(figures, resolve=True) or DEFAULT_SCENES
    return tuple(Scene.from_config(str(name), env, **spec) for name, spec in dict(wanted).items())  # type: ignore[arg-type]


@dataclass(frozen=True)
class Scene:
    """Pairs to explain side by side.

    Each pair names a state and an action: by name, `policy` for what the agent does, or
    `runner_up` for the best valid action that it does not take.
    """

    name: str
    states: tuple[int, ...]
    actions: tuple[int | str, ...]
    contrast: bool = False
    """Also show how the return of the first pair differs from that of the second."""

    @property
    def title(self) -> str:
        return self.name.replace("_", " ").capitalize()

    @classmethod
    def from_config(
        cls, name: str, env: Environment, pairs: Sequence[Mapping[str, Any]], contrast: bool = False
    ) -> "Scene":
        """Resolve names, refusing those that the environment does not have."""
        boolean("contrast", contrast)
        if not pairs or (contrast and len(pairs) != 2):
            raise ValueError(f"figure {name!r} has {len(pairs)} pairs; a contrast needs 2, others 1 or more")
        states, actions = [], []
        for pair in pairs:
            unknown = set(pair) - {"state", "action"}
            if unknown or "state" not in pair:
                raise ValueError(f"figure {name!r}: a pair has a state and an action, not {dict(pair)}")
            states.append(env.state(pair["state"]))
            action = pair.get("action", POLICY)
            actions.append(action if action in (POLICY, RUNNER_UP) else env.action(action))
        return cls(name, tuple(states), tuple(actions), contrast)

    def explain(self, explainer: Explainer, env: Environment) -> Explanation:
        """The explanation of every pair, in order."""
        states = np.array(self.states)
        own = explainer.policy.action(states)
        actions = [
            own[i]
            if action == POLICY
            else runner_up(explainer, env, states[i])
            if action == RUNNER_UP
            else action
            for i, action in enumerate(self.actions)
        ]
        return explainer.explain(states, np.array(actions, dtype=np.int64))

    def draw(self, explainer: Explainer, env: Environment, subtitle: str) -> Figure:
        """The whole page: states, events and rewards, one column for each pair."""
        explanation = self.explain(explainer, env)
        columns = len(explanation)
        states = [int(state) for state in explanation.observations]
        actions = [env.name_of_action(int(action)) for action in explanation.actions]
        rewarded = explanation.legend.reward_bound is not None
        notes = self._notes(explanation, explainer, env)
        figure, grid, below = plots.page(3 if rewarded else 2, columns, len(notes))
        for axes in grid[-1][1:]:
            axes.sharey(grid[-1][0])
        draw_outcomes = plots.events if explanation.legend.partition else plots.outcomes
        for i in range(columns):
            if i == 1 and self.contrast and rewarded:
                plots.return_difference(grid[0][i], explanation[:1] - explanation[1:], 0)
                grid[0][i].set_title(f"return of {actions[0]} minus {actions[1]}", fontsize=10)
            else:
                plots.picture(grid[0][i], env.picture(states[i]))
            draw_outcomes(grid[1][i], explanation, i)
            grid[1][i].set_title(f"{env.name_of_state(states[i])}: {actions[i]}", fontsize=10)
            if rewarded:
                plots.reward_components(grid[2][i], explanation, i)
        plots.key(figure, explanation)
        plots.notes(below, notes)
        figure.suptitle(f"{self.title}, {subtitle}", fontsize=13)
        return figure

    def _notes(self, explanation: Explanation, explainer: Explainer, env: Environment) -> list[str]:
        """Sentences, in lines that fit below the plots."""
        sentences = []
        for i, (state, action) in enumerate(zip(explanation.observations, explanation.actions, strict=True)):
            pair = f"{env.name_of_state(int(state))}, {env.name_of_action(int(action))}"
            sentences.append(f"{pair}: {'; '.join(remarks(explanation, i))}")
        contradictions = [disagreement(explainer, env, state) for state in dict.fromkeys(self.states)]
        sentences += [sentence for sentence in contradictions if sentence]
        width = CHARACTERS_PER_COLUMN * len(explanation)
        return [line for sentence in sentences for line in textwrap.wrap(sentence, width)]


def runner_up(explainer: Explainer, env: Environment, state: int) -> int:
    """The best valid action that the policy does not take; its own where it has no choice.

    Best by the explained returns; where the outcomes say nothing of rewards, by the agent itself.
    """
    states = np.array([state])
    own = int(explainer.policy.action(states)[0])
    scores = explainer.policy.action_values(states)
    if explainer.legend.reward_bound is not None:
        scores = np.nan_to_num(explainer.action_returns(states), nan=np.finfo(np.float64).min)
    if scores is None:
        scores = explainer.policy.probabilities(states)
    others = env.mask(states)[0]
    others[own] = False
    return int(np.argmax(np.where(others, scores[0], -np.inf))) if others.any() else own
