"""The command `tpd-mcp`; heavy imports are deferred, so that --help is fast."""

import os
import sys

from tpd.guards.terminal import as_text

HELP = """tpd-mcp answers questions about agents to a language model, over the Model Context Protocol (stdio).

  tpd-mcp [folder or store] [trust=[my_module]]

  folder     the folder of runs that tpd-run or Explainer.save wrote; by default outputs
  store      an MLflow store, for example sqlite:////home/me/mlflow.db or http://host:5000
  trust=     trusted modules, which define environments, events or policies of the runs

An assistant starts it, with these settings:

  {"mcpServers": {"tpd": {"command": "tpd-mcp", "args": ["/home/me/outputs"]}}}

It needs the extra: pip install 'tpd[assistants]'. See docs/how_to/assistants.md."""
MISSING = "tpd-mcp needs the package mcp: pip install 'tpd[assistants]'"


def main() -> None:
    """Serve until the assistant closes stdin."""
    words = sys.argv[1:]
    if words and words[0] in ("-h", "--help"):
        print(HELP)
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    places = [word for word in words if not word.startswith("trust=")]
    trust = [word.removeprefix("trust=").strip("[]") for word in words if word.startswith("trust=")]
    if len(places) > 1 or len(trust) > 1 or any(place.startswith("-") for place in places):
        sys.exit(f"tpd-mcp takes one folder or store, and trust=, got {as_text(' '.join(words))}\n\n{HELP}")
    modules = [name.strip() for name in ",".join(trust).split(",") if name.strip()]
    try:
        from tpd.assistants.server import Server
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types"):
            raise
        sys.exit(MISSING)
    from tpd.assistants.library import Library

    try:
        Server(Library(places[0] if places else "outputs", modules)).run("stdio")
    except (ValueError, OSError) as error:
        sys.exit(as_text(str(error)))
    except KeyboardInterrupt:
        sys.exit(130)
