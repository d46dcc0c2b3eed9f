"""Processes that others have started end with them, however those ended."""

import os
import threading
import time
from functools import cache

SECONDS_BETWEEN_LOOKS = 0.5


@cache
def end_with(parent: int) -> None:
    """From now on, end as soon as the parent has gone; nothing, if this process is no child of it."""
    if os.getppid() == parent:
        threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(SECONDS_BETWEEN_LOOKS)
    os._exit(1)  # nobody waits for it any more, and somebody may want to go on in its place
