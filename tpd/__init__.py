"""Temporal Policy Decomposition: what an RL agent expects to happen next, step by step."""

__version__ = "0.3.0"
