"""A process that has loaded the libraries, and forks a child for each command: starting one takes seconds.

It loads nothing of this project, so that a command loads all of it anew, as it would by itself. The child
is as the interpreter that was asked for: its folder, environment, path, arguments and outputs are those of
the request, and it ends as any script ends.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import sys
from pathlib import Path
from typing import Any

DEFAULTS = {  # read by libraries when they are imported; commands of this project set the same
    "OMP_NUM_THREADS": "1",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
}
LIBRARIES = (
    "IPython.display",
    "alembic.config",
    "cffi.api",
    "filelock",
    "git",
    "gymnasium.envs.toy_text",
    "hydra._internal.hydra",
    "hydra._internal.core_plugins.basic_launcher",
    "hydra_plugins.hydra_joblib_launcher.joblib_launcher",
    "joblib",
    "matplotlib.backends.backend_agg",
    "matplotlib.pyplot",
    "mlflow.pyfunc.model",
    "mlflow.store.artifact.local_artifact_repo",
    "mlflow.store.db.utils",
    "mlflow.store.model_registry.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_store",
    "mlflow.store.tracking.sqlalchemy_workspace_store",
    "mlflow.tracing.provider",
    "numba.core.registry",
    "opentelemetry.sdk.metrics.export",
    "pandas",
    "psutil",
    "pyarrow.pandas_compat",
    "pyarrow.parquet",
    "rich.progress",
    "sb3_contrib",
    "scipy.stats",
    "sqlalchemy.dialects.sqlite",
    "stable_baselines3",
    "torch",
)


def serve() -> dict[str, Any]:
    """Answer each request with the id of its child, and then with how it ended; a child gets the request."""
    requests = os.fdopen(os.dup(0))
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    with open(os.devnull, "r+") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    for line in requests:
        child = os.fork()
        if child == 0:
            requests.close()
            answers.close()
            request: dict[str, Any] = json.loads(line)
            return request
        print(child, file=answers)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=answers)
    os._exit(0)


def become(request: dict[str, Any], libraries: list[str]) -> None:
    """Be the interpreter that the request asks for."""
    import numpy as np

    os.setsid()
    os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    for output, path in ((1, request["stdout"]), (2, request["stderr"])):
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, output)
        os.close(file)
    own = [word for word in request["environment"].get("PYTHONPATH", "").split(os.pathsep) if word]
    sys.path[:] = [str(Path(request["script"]).parent), *own, *libraries]
    sys.argv[:] = [request["script"], *request["words"]]
    np.random.seed()  # noqa: NPY002 - else all children would draw the same, which no two processes do


if __name__ == "__main__":
    del sys.path[0]  # this folder, whose modules are called as others are
    os.environ.update({name: value for name, value in DEFAULTS.items() if name not in os.environ})
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):  # whoever needs it will say so
            importlib.import_module(name)
    with contextlib.suppress(ImportError, AttributeError):  # what else numba loads before it first runs
        sys.modules["numba.core.registry"].cpu_target.target_context.refresh()
    gc.freeze()
    path = list(sys.path)
    request = serve()
    become(request, path)
    runpy.run_path(request["script"], run_name="__main__")
