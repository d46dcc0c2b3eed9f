"""Events and reward components of known environments, each a function of a batch of transitions."""
