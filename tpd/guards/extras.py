"""Packages that only some environments need, and the extras of tpd that install them."""

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {
    "Box2D": "pip install 'tpd[box2d]'",
    "minigrid": "pip install 'tpd[maze]'",
    "mobile_env": "pip install 'tpd[radio]' && pip install --no-deps mobile-env==2.1.0",
    "mujoco": "pip install 'tpd[robots]'",
    "pygame": "pip install 'tpd[render]'",
}
"""How each is installed. mobile-env is installed alone: it asks for pygame, which writes over pygame-ce."""


class MissingExtraError(ImportError):
    """A package that is not installed."""


@contextmanager
def needed_by(world: str) -> Iterator[None]:
    """Say in one line which extra is missing, where a world cannot be made for want of its package."""
    try:
        yield
    except Exception as error:  # Gymnasium raises others than ImportError, too
        package = _missing(error)
        if package is None:
            raise
        raise MissingExtraError(
            f"{world} needs the package {package}, which cannot be imported: {EXTRAS[package]}"
        ) from error


def _missing(error: BaseException | None) -> str | None:
    """The package of an extra for want of which the error was raised, if it was."""
    while error is not None:
        package = str(getattr(error, "name", "")).partition(".")[0]
        if isinstance(error, ImportError) and package in EXTRAS:
            return package
        error = error.__cause__ or error.__context__
    return None
