"""Figures, tables and the report, the only home of matplotlib; imports store and below."""

from tpd.guards.working_directory import hidden

with hidden("matplotlibrc"):  # somebody else's settings file could name modules, or run LaTeX
    import matplotlib  # noqa: F401
