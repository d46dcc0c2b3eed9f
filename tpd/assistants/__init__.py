"""Answers for language models, over the Model Context Protocol (MCP); the only home of mcp."""
