"""Tables in the terminal."""

import shutil
import sys

from rich.console import Console
from rich.table import Table

from tpd.guards.terminal import terminal


def show(table: Table) -> None:
    """Print to the terminal, wide enough for pipes and logs too."""
    seen = terminal(sys.stdout).isatty()
    width = shutil.get_terminal_size().columns if seen else 120
    Console(width=width, markup=False, emoji=False, highlight=False).print(table)
