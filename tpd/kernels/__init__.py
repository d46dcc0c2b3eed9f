"""Compiled loops, the only home of numba; imports core."""
