"""The report: one page that plays recorded episodes with what was expected at each step."""

from tpd.show.report.page import write

__all__ = ["write"]
