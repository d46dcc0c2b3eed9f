"""Explanations as English sentences: describing one pair, comparing two."""
