"""The report: an HTML page that plays recorded episodes with the explanation of each step."""

from tpd.show.report.page import shown_episodes, write
from tpd.show.report.rows import some_episodes

__all__ = ["shown_episodes", "some_episodes", "write"]
