"""Commands of the project, run as a user would."""

import atexit
import functools
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support import stores

ROOT = Path(__file__).parents[2]
IN_TURN = "hydra/launcher=basic"
"""The jobs of a sweep one after the other, where nothing depends on the processes of the usual launcher."""


class ForkServer:
    """Runs scripts in children of a process that has loaded the libraries already: see `fork_server`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("fork_server.py"))],
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        atexit.register(self.stop)

    def stop(self) -> None:
        """End with the tests; a server whose tests died ends as well, for nobody can ask it any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.kill()  # a fork of the tests may hold its input open
        self._process.wait()

    def run(
        self,
        script: Path,
        words: list[str],
        folder: Path,
        environment: dict[str, str],
        together: bool = False,
        seconds: float | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """As `subprocess.run` of Python with this script; `together` puts the errors into the output."""
        assert self._process.stdin is not None
        with tempfile.TemporaryDirectory() as name:
            outputs = [Path(name) / "stdout", Path(name) / ("stdout" if together else "stderr")]
            request = {
                "script": str(script),
                "words": words,
                "folder": str(folder),
                "environment": environment,
                "stdout": str(outputs[0]),
                "stderr": str(outputs[1]),
            }
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            returncode = self._wait(int(self._answer()), seconds)
            stdout, stderr = (path.read_text() for path in outputs)
        return subprocess.CompletedProcess([str(script), *words], returncode, stdout, stderr)

    def _wait(self, child: int, seconds: float | None) -> int:
        assert self._process.stdout is not None
        in_time, _, _ = select.select([self._process.stdout], [], [], seconds)
        if not in_time:
            os.killpg(child, signal.SIGKILL)
        returncode = int(self._answer())
        assert in_time, f"not done after {seconds} s"
        return returncode

    def _answer(self) -> str:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer, "the process that forks has died"
        return answer


@functools.cache
def fork_server() -> ForkServer:
    """The only one of this process, from the first command on."""
    return ForkServer()


def tpd_run(
    folder: Path, *overrides: str, check: bool = True, store: bool = False
) -> subprocess.CompletedProcess[str]:
    """The command as a user types it, in a folder of its own; `store` puts a new store there before."""
    if store:
        stores.copy(folder / "mlflow.db")
    environment = {**os.environ, "CI": "true", "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    done = fork_server().run(ROOT / "scripts" / "run.py", list(overrides), folder, environment)
    if check:
        assert done.returncode == 0, done.stdout + done.stderr
    return done
