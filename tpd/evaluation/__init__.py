"""Compares predictors with the truth and with fresh episodes; imports predictors and below."""
