"""Explanations that need no learning, to judge the learned ones by."""
