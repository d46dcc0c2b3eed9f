"""A learned one-step model of the environment, rolled out with the policy; a home of torch in tpd."""
