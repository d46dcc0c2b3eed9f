"""Stable-Baselines3 agents, loaded or in training, as policies that tpd explains."""

from sb3_ext.callback import ExplainerCallback
from sb3_ext.explaining import explainer_for
from sb3_ext.loading import load_agent
from sb3_ext.policies import as_policy

__all__ = ["ExplainerCallback", "as_policy", "explainer_for", "load_agent"]
