"""Counts transitions and solves the counted model exactly: certainty-equivalent policy evaluation."""
