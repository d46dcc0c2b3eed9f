"""Fixed-horizon TD (FHTD) with a neural network; one of the two homes of torch in tpd."""
