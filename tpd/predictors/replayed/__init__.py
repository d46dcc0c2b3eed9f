"""Counted transitions, solved exactly: certainty-equivalent evaluation of the policy."""
