"""Figures, tables and the report, the only home of matplotlib; imports store and below."""
