"""Packages that only some environments need, and the extras of tpd that install them."""

import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "Box2D": "pip install 'tpd[box2d]'",
    "minigrid": "pip install 'tpd[maze]'",
    "mobile_env": "pip install 'tpd[radio]' && pip install --no-deps mobile-env==2.1.0",
    "mujoco": "pip install 'tpd[robots]'",
    "pygame": "pip install 'tpd[render]'",
}
"""How to install each. mobile-env is installed alone: it requires pygame, which would overwrite pygame-ce."""


@contextmanager
def needed_by(world: str) -> Iterator[None]:
    """Say in one line what is missing, a package or OpenGL, if an environment cannot be made without it."""
    try:
        yield
    except Exception as error:  # Gymnasium also raises other errors than ImportError
        package, renderer = _missing(error), os.environ.get("MUJOCO_GL")
        if renderer and any(
            f"{os.sep}OpenGL{os.sep}" in at.filename for at in traceback.extract_tb(error.__traceback__)
        ):
            raise RuntimeError(
                f"{world} cannot load OpenGL with MUJOCO_GL={renderer}: unset MUJOCO_GL, or set it to disable"
            ) from error
        if package is None:
            raise
        raise ImportError(
            f"{world} needs the package {package}, which cannot be imported: {EXTRAS[package]}"
        ) from error


def _missing(error: BaseException | None) -> str | None:
    """The optional package whose absence caused the error, if any."""
    while error is not None:
        package = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ImportError) and package in EXTRAS:
            return package
        error = error.__cause__ or error.__context__
    return None
