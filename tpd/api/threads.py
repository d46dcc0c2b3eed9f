"""Limits torch to one thread while an explainer works."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one torch thread inside this context, as on the command line; does nothing if torch is not loaded.

    Small networks are slower with several threads, and their rounding would depend on the number of cores.
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
