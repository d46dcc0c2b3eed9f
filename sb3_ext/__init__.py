"""Stable-Baselines3 agents, as policies that tpd can explain. Imports tpd, never the reverse."""
