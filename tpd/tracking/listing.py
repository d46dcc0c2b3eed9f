"""Lists the runs in a store that have an explainer and can be asked."""

from pathlib import Path
from typing import NamedTuple

from mlflow.exceptions import MlflowException

from tpd.tracking.backend_store import RUN_VERSION, SQLITE, client_of, require_usable
from tpd.tracking.runs import ABOUT


class TrackedRun(NamedTuple):
    """A finished run of tpd in a store."""

    id: str
    name: str
    about: dict[str, str]
    """Environment, policy, explainer and seed, as far as they are recorded."""


def list_tracked(uri: str, most: int) -> list[TrackedRun]:
    """The newest finished runs that have an explainer, newest first."""
    if uri.startswith(SQLITE) and not Path(uri.removeprefix(SQLITE)).exists():  # MLflow would create one
        raise ValueError(f"there is no store {uri}: start a run first, or pass another store")
    require_usable(uri)
    client = client_of(uri)
    try:
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        wanted = f"attributes.status = 'FINISHED' AND tags.`{RUN_VERSION}` != ''"
        order = ["attributes.start_time DESC"]
        found = client.search_runs(experiments, wanted, order_by=order, max_results=most)
    except MlflowException as error:
        raise ValueError(f"the store {uri} cannot be read: {' '.join(error.message.split())}") from error
    return [
        TrackedRun(
            run.info.run_id,
            str(run.info.run_name),
            {name: run.data.tags[name] for name in ABOUT if name in run.data.tags},
        )
        for run in found
        if run.outputs is None or run.outputs.model_outputs
    ]
