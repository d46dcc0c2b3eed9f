"""The reading test: can somebody who knows nothing of a world answer questions about it from a text?"""
