"""The report: one page that plays recorded episodes with what was expected at each step."""

from tpd.show.report.page import shown_episodes, write
from tpd.show.report.rows import some_episodes

__all__ = ["shown_episodes", "some_episodes", "write"]
