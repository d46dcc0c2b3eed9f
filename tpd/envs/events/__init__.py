"""Events and reward terms of known environments, each a function of a batch of transitions."""
