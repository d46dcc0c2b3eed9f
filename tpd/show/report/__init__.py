"""The report: an HTML page that plays recorded episodes with the explanation of each step."""

from tpd.show.report.page import shown_episodes, write

__all__ = ["shown_episodes", "write"]
