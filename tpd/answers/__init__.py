"""Answers made from explanations: foils, what-if, turning points, sentences; imports evaluation and below."""
