"""A conversation with `tpd-mcp` in a process of its own, by the client of the protocol's SDK."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio
from mcp import Client, StdioServerParameters, stdio_client
from mcp.types import CallToolResult, Tool

from tests.support.commands import ROOT

START = "from tpd.assistants.cli import main; main()"


class Call(NamedTuple):
    """A tool and its arguments."""

    tool: str
    arguments: dict[str, Any]


class Conversation(NamedTuple):
    """What was answered."""

    tools: list[Tool]
    results: list[CallToolResult]
    reports: list[str]
    """Messages of progress."""


def environment(*folders: Path) -> dict[str, str]:
    """For the server: where Python finds tpd, and modules in these folders."""
    return {"PYTHONPATH": ":".join(map(str, (ROOT, *folders))), "OMP_NUM_THREADS": "1"}


def converse(words: Sequence[str], calls: Sequence[Call], *folders: Path) -> Conversation:
    """Start the server with these words, and make the calls one after the other."""
    said = Conversation([], [], [])

    async def report(progress: float, total: float | None, message: str | None) -> None:
        said.reports.append(message or "")

    async def talk() -> None:
        server = StdioServerParameters(
            command=sys.executable, args=["-c", START, *words], env=environment(*folders)
        )
        async with Client(stdio_client(server)) as client:
            said.tools.extend((await client.list_tools()).tools)
            for call in calls:
                said.results.append(
                    await client.call_tool(call.tool, call.arguments, progress_callback=report)
                )

    anyio.run(talk)
    return said


def told(result: CallToolResult) -> dict[str, Any]:
    """The structured content of a result that is no error."""
    assert not result.is_error, result.content
    assert isinstance(result.structured_content, dict)
    return result.structured_content


def refused(result: CallToolResult) -> str:
    """The one line of a result that is an error."""
    assert result.is_error
    (part,) = result.content
    assert part.type == "text"
    assert "\n" not in part.text
    assert len(part.text) < 2000
    return part.text
