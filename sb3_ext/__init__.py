"""Stable-Baselines3 agents, loaded or in training, as policies that tpd explains."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sb3_ext.callback import ExplainerCallback
    from sb3_ext.live_models import explainer_for
    from sb3_ext.loading import load_agent
    from sb3_ext.policies import as_policy

__all__ = ["ExplainerCallback", "as_policy", "explainer_for", "load_agent"]

_HOMES = {
    "ExplainerCallback": "sb3_ext.callback",
    "as_policy": "sb3_ext.policies",
    "explainer_for": "sb3_ext.live_models",
    "load_agent": "sb3_ext.loading",
}
"""The module of each public name; imported on first use, and not needed to load a saved run."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sb3_ext' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
