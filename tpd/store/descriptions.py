"""Typed descriptions in JSON: every field is validated when it is read, and nothing in it is run.

Functions and classes are stored as `module:name`. A module is only imported if it contains tpd's own events,
or if the user trusts it by name.
"""

import importlib
import json
import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import FunctionType
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

OURS = ("tpd.core.outcomes", "tpd.envs.events")
DEEPEST, LARGEST_WHOLE = 8, 2**63
IDENTIFIER = r"[A-Za-z_][A-Za-z0-9_]*"
NAME = rf"^{IDENTIFIER}(\.{IDENTIFIER})*:{IDENTIFIER}$"

LONGEST_KWARGS = 10_000
ENV_NAMES, FILE = ("id", "env_id"), r"[/\\]|\.[A-Za-z]{2,5}$"
"""Keywords that name environments, and a pattern of file names."""

T = TypeVar("T")


class UntrustedError(ValueError):
    """A description that refers to code in a module that is not trusted."""


def plain(value: Any, depth: int = 0) -> Any:
    """The value, if it consists of finite numbers, strings, lists and dicts; tuples become lists."""
    if depth > DEEPEST:
        raise ValueError(f"a value nested more than {DEEPEST} levels deep cannot be stored")
    match value:
        case None | bool():
            return value
        case int() if abs(value) < LARGEST_WHOLE:
            return value
        case float() if math.isfinite(value):
            return value
        case str() if "${" not in value:
            return value
        case list() | tuple():
            return [plain(part, depth + 1) for part in value]
        case dict() if all(isinstance(key, str) and key != "_target_" for key in value):
            return {plain(key): plain(part, depth + 1) for key, part in value.items()}
    raise ValueError(
        f"{repr(value)[:80]} cannot be stored: expected None, a bool, a finite number, a string without "
        "${, or a list or dict of these"
    )


Plain = Annotated[Any, AfterValidator(plain)]
Finite = Annotated[float, Field(allow_inf_nan=False)]


class Stored(BaseModel):
    """Base class of stored records: frozen, strictly typed, no extra fields."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)


def validated(kind: type[T] | Any, given: Any, place: str = "") -> T:
    """Validate a JSON value as a record of this kind; a ValueError names the first invalid field."""
    try:
        found: T = TypeAdapter(kind).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(filter(None, [place, *map(str, first["loc"])])) or "it"
        ours = first.get("ctx", {}).get("error")
        told = ours or f"{first['msg']}, got {str(first['input'])[:80]!r}"
        raise ValueError(f"{field}: {told}") from None
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return found


def written(record: Stored) -> dict[str, Any]:
    """The record as JSON values; None is left out."""
    return record.model_dump(mode="json", exclude_none=True)


class NamedFunction(Stored):
    """A function or class of a module, and its keyword arguments."""

    name: Annotated[str, Field(pattern=NAME, max_length=300)]
    """`module:name`"""
    arguments: dict[str, Plain] = {}

    @property
    def module(self) -> str:
        return self.name.partition(":")[0]

    def find(self, trusted: Sequence[str] = ()) -> Callable[..., Any]:
        """Import the function, if its module belongs to tpd's events or is trusted."""
        require_trust(self.module, trusted)
        try:
            found = getattr(importlib.import_module(self.module), self.name.partition(":")[2], None)
        except ImportError as error:
            where = "for a module in the working directory, set PYTHONPATH=."
            raise ValueError(f"{self.name!r} cannot be imported: {error}; {where}") from error
        if not isinstance(found, FunctionType | type) or not within(found.__module__, (*OURS, *trusted)):
            raise UntrustedError(
                f"{self.name!r} is no function or class of {self.module}: trust the module that defines it"
            )
        return partial(found, **self.arguments) if self.arguments else found


def named(function: Any) -> NamedFunction:
    """The description of a function or a partial; a ValueError gives the reason if there is none."""
    arguments: dict[str, Any] = {}
    while isinstance(function, partial):
        if function.args:
            raise ValueError(f"a partial of {function.func} has positional arguments: pass them by keyword")
        arguments = {**function.keywords, **arguments}
        function = function.func
    if not isinstance(function, FunctionType | type):
        raise ValueError(f"a {type(function).__name__} is neither a function nor a class of a module")
    module, name = function.__module__, function.__qualname__
    if module == "__main__":
        raise ValueError(
            f"{name} is defined in the script or notebook itself: move it to a module that can be imported"
        )
    if getattr(sys.modules.get(module), name, None) is not function:
        raise ValueError(f"{module}:{name} is not defined at the top level of its module")
    return NamedFunction(name=f"{module}:{name}", arguments={key: plain(v) for key, v in arguments.items()})


def require_trust(module: str, trusted: Sequence[str]) -> None:
    """Refuse a module that is neither tpd's own nor trusted, without importing it."""
    if not within(module, (*OURS, *trusted)):
        root = module.partition(".")[0]
        advice = [name for name in trusted if not within(name, ("tpd",))] + [
            module if root == "tpd" else root
        ]
        raise UntrustedError(
            f"the module {module!r} is not part of tpd, and importing it executes its code; if you trust it, "
            f"pass trust=[{','.join(advice)}], in Python trust={advice}"
        )


def within(name: str, modules: Sequence[str]) -> bool:
    """Whether the name is one of these modules or a submodule of one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


def described(values: Mapping[str, Any]) -> dict[str, Any]:
    """Keyword arguments as plain values; a ValueError names the one that is not plain."""
    found = {}
    for key, value in values.items():
        try:
            found[str(key)] = plain(value)
        except ValueError as error:
            raise ValueError(f"{key}={error}") from error
    return found


def modest(kwargs: dict[str, Any]) -> dict[str, Any]:
    """The keyword arguments; refused if they make a huge environment or open a window."""
    told = json.dumps(kwargs)
    if '"render_mode"' in told:  # at any depth
        raise ValueError("render_mode is not allowed in a file, since it could open a window: remove it")
    if len(told) > LONGEST_KWARGS:
        raise ValueError(f"keyword arguments of environments are limited to {LONGEST_KWARGS} characters")
    return kwargs


def require_no_files(kwargs: Any) -> None:
    """Refuse keyword arguments that may name a file, such as a MuJoCo model."""
    for key, value in kwargs.items() if isinstance(kwargs, dict) else enumerate(kwargs):
        if isinstance(value, dict | list):
            require_no_files(value)
        elif isinstance(value, str) and key not in ENV_NAMES and re.search(FILE, value):
            raise ValueError(f"{key}={value[:80]!r} looks like a file name, which stored arguments cannot be")
