"""A learned model of the world, rolled out with the policy; a home of torch in tpd."""
