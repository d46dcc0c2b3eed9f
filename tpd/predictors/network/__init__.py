"""Fixed-horizon TD with a network, a home of torch in tpd."""
