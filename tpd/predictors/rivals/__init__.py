"""Baselines: other explanation methods of the field, for the same policy and the same transitions.

Each is a predictor with its own quantity and limits. Quantities that a method does not predict have the
verdict `Verdict.UNANSWERABLE`, and no number is reported. docs/results/comparison.md compares the methods.
"""
