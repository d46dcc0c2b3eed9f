"""Format tpd's docstrings for the API reference: examples as code, and `name: meaning` lines as a list.

mkdocs.yml loads it as an extension of griffe, which reads the sources without importing them.
"""

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?:^>>> .*\n?(?:^(?!>>> )\S.*\n?|^>>> .*\n?)*)", re.MULTILINE)
NAMED = re.compile(r"^((?:\w+, )*\w+): (?=\S)", re.MULTILINE)
FURTHER = re.compile(r"\n {4,}(?=\S)")


def as_markdown(text: str) -> str:
    """The docstring as Markdown."""
    prose, *rest = re.split(r"(?=^>>> )", text, maxsplit=1, flags=re.MULTILINE)
    named = NAMED.sub(lambda match: f"\n- `{match[1]}`: ", FURTHER.sub(" ", prose))
    return named + "".join(
        EXAMPLE.sub(lambda match: f"```pycon\n{match[0].rstrip()}\n```\n", each) for each in rest
    )


class Docstrings(griffe.Extension):
    """Rewrites every docstring of tpd and sb3_ext."""

    def on_instance(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
