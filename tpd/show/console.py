"""Prints tables in the terminal."""

import shutil
import sys

from rich.console import Console
from rich.table import Table

from tpd.guards.terminal import terminal


def empty_table(title: str, *headings: str, texts: int = 1) -> Table:
    """A table without rows: `texts` columns of text, aligned left, then columns of numbers, aligned right."""
    table = Table(title=title, title_justify="left", caption_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < texts else "right")
    return table


def show(table: Table) -> None:
    """Print a table to the terminal; pipes and logs get a width of 120."""
    seen = terminal(sys.stdout).isatty()
    width = shutil.get_terminal_size().columns if seen else 120
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)
