"""Fixed-horizon temporal-difference learners."""
