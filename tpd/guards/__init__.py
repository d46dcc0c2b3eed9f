"""Refuses bad settings, files and sizes, and writes files atomically; imports no other room."""
