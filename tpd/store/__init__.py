"""Saves runs and explainers, and loads them without running stored code; imports answers and below."""
