"""Fixed-horizon TD with a network, the only home of torch in tpd."""
