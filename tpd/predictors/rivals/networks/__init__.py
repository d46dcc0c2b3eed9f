"""The baselines with neural networks, for observations that are not discrete."""
