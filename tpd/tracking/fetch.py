"""Finds the run that a person names: a folder, or a run in the tracking store."""

from pathlib import Path

from tpd.store.explainers import DESCRIPTION
from tpd.store.run_folders import require_own_version
from tpd.store.saved_runs import CONFIG, EXPLAINER


def fetch(name: str, uri: str, folder: Path) -> Path:
    """The folder of a run: given as such, or copied from the store by run id or model URI."""
    if any((Path(name) / file).exists() for file in (CONFIG, f"{EXPLAINER}/{DESCRIPTION}")):
        require_own_version(Path(name))
        return Path(name)
    from tpd.tracking.downloads import download  # mlflow is slow to import

    return download(name, uri, folder)
