"""Packages that only some worlds need: extras of tpd."""

import importlib
from types import ModuleType


class MissingExtraError(ImportError):
    """A package that is not installed, and the extra of tpd that installs it."""


def require(module: str, extra: str, world: str) -> ModuleType:
    """The module, which the world needs; refused in one line that names the extra where it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        reason = "" if error.name == package else f" ({error})"
        raise MissingExtraError(
            f"{world} needs the package {package}, which cannot be imported{reason}: "
            f"pip install 'tpd[{extra}]'"
        ) from error
