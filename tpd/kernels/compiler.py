"""Imports numba safely: without the settings file in the working directory, and with a private cache.

A `.numba_config.yaml` in the working directory could name a cache folder, whose pickles numba would run.
"""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

from tpd.guards.working_directory import hidden

SETTINGS = ".numba_config.yaml"


def private_cache() -> Path:
    """A cache folder that only this user can write to; if that is impossible, a temporary one."""
    named = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        root = named if named.is_absolute() else Path.home() / ".cache"
        folder = root / "tpd" / "numba"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
    except (OSError, RuntimeError):  # no home, or none that can be written to
        return _passing()
    if about.st_uid != os.getuid() or about.st_mode & 0o022 or not os.access(folder, os.W_OK):
        return _passing()
    return folder


def _passing() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="tpd-numba-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ["NUMBA_CACHE_DIR"] = str(private_cache())
with hidden(SETTINGS):  # numba looks for the file at import
    from numba import njit
    from numba.core import config

if config._config_fname != os.devnull:
    # numba looks again before every compilation, and may have read the file before tpd was imported
    config._config_fname = os.devnull
    config._env_reloader.reset()  # type: ignore[no-untyped-call]

__all__ = ["njit"]
