"""Checks stored keyword arguments of environments, which may come from somebody else's file."""

import json
import re
from typing import Any

LONGEST_KWARGS = 10_000
ENV_NAMES, FILE = ("id", "env_id"), r"[/\\]|\.[A-Za-z]{2,5}$"
"""Keywords that name environments, and a pattern of file names."""


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
