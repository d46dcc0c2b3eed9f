"""Figures, tables and the report, the only home of matplotlib; imports store and below."""

from tpd.guards.working_directory import hidden

with hidden("matplotlibrc"):  # a stranger's settings could name modules, or have LaTeX run
    import matplotlib  # noqa: F401
