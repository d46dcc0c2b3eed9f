"""How many threads torch uses while it works for an explainer."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """One, as on the command line, and then as many as before; nothing happens where torch is not loaded.

    Small networks lose more than they win by sharing a batch among cores, and their digits would depend on
    how many there are.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
