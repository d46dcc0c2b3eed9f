"""Fixed-horizon TD (FHTD) with a neural network; a home of torch in tpd."""
