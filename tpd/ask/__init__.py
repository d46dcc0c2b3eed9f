"""Asking a finished run: why this and not that, here and not there, and what if rewards were others."""
