"""Rivals for observations that no table can hold: the same quantities, with a network each."""
