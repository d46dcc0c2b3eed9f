"""Explanations in sentences: one pair described, two pairs compared."""
