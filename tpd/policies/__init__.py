"""Policies that tpd owns, and how they are trained."""
