"""Temporal Policy Decomposition: what an RL agent expects to happen next, step by step.

>>> import tpd
>>> agent = lambda observations: observations[:, 2] > 0  # or tpd.load_agent("agent.zip", env="CartPole-v1")
>>> explainer = tpd.Explainer(agent, env="CartPole-v1", horizon=20)
>>> episodes = explainer.play(seeds=range(3))  # the worst first
>>> answer = explainer.why(episodes[0][-5])  # five steps before the end
>>> answer.fact.name, answer.foil.name
('push left', 'push right')
>>> round(answer.table.loc["first falls", "fact"].item(), 2)
1.0
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tpd.answers.answer import Answer
    from tpd.api.agents import load_agent
    from tpd.api.behaviour import Behaviour
    from tpd.api.episodes import PlayedEpisode, PlayedEpisodes
    from tpd.api.explainer import Explainer
    from tpd.api.loading import load
    from tpd.api.quality import Quality
    from tpd.core.contrast import Contrast
    from tpd.core.explanation import Explanation
    from tpd.core.outcomes import Outcome, OutcomeSet, component, event, reward
    from tpd.core.types import DiscretePolicy, Learner, Policy, Predictor, RecurrentPolicy, Transitions
    from tpd.core.verdicts import Verdict
    from tpd.envs.environment import Environment
    from tpd.sources.moments import Moment

__version__ = "0.3.0"

_NAMES = {
    "tpd.answers.answer": ("Answer",),
    "tpd.api.agents": ("load_agent",),
    "tpd.api.behaviour": ("Behaviour",),
    "tpd.api.episodes": ("PlayedEpisode", "PlayedEpisodes"),
    "tpd.api.explainer": ("Explainer",),
    "tpd.api.loading": ("load",),
    "tpd.api.quality": ("Quality",),
    "tpd.core.contrast": ("Contrast",),
    "tpd.core.explanation": ("Explanation",),
    "tpd.core.outcomes": ("Outcome", "OutcomeSet", "component", "event", "reward"),
    "tpd.core.types": ("DiscretePolicy", "Learner", "Policy", "Predictor", "RecurrentPolicy", "Transitions"),
    "tpd.core.verdicts": ("Verdict",),
    "tpd.envs.environment": ("Environment",),
    "tpd.sources.moments": ("Moment",),
}
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
"""Where each name lives; it is imported when it is first asked for."""

__all__ = [
    "Answer",
    "Behaviour",
    "Contrast",
    "DiscretePolicy",
    "Environment",
    "Explainer",
    "Explanation",
    "Learner",
    "Moment",
    "Outcome",
    "OutcomeSet",
    "PlayedEpisode",
    "PlayedEpisodes",
    "Policy",
    "Predictor",
    "Quality",
    "RecurrentPolicy",
    "Transitions",
    "Verdict",
    "__version__",
    "component",
    "event",
    "load",
    "load_agent",
    "reward",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from difflib import get_close_matches

        near = "".join(f"; did you mean {each}?" for each in get_close_matches(name, __all__, 1))
        raise AttributeError(f"module 'tpd' has no attribute {name!r}{near}")
    found = getattr(import_module(_HOMES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
