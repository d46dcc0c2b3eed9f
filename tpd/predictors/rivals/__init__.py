"""What other methods of the field say of the same policy, from the same transitions.

Each is a predictor like all others here, with its own quantity and its limits: what a method cannot tell is
`Verdict.UNANSWERABLE`, and no number is given for it. docs/results/comparison.md compares them.
"""
