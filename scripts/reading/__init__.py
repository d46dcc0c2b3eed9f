"""The reading test: can readers who do not know an environment answer questions about it from a text?"""
