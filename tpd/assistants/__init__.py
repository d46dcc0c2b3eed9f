"""Answers for language models, over the Model Context Protocol; the only home of mcp."""
