"""What another version of tpd wrote is refused in one line that names the version."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from mlflow import MlflowClient

from tests.support import good_files
from tests.support.commands import tpd_run
from tpd import __version__
from tpd.envs.dataset import DESCRIPTION, FIRST_DESCRIPTION, DatasetDescription, require_writable
from tpd.guards.versions import WRITTEN_BY, VersionError, require_version
from tpd.store import explainers, saved_runs
from tpd.store.run_folders import STATUS, SWEEP, require_own_version, write_record
from tpd.tracking.backend_store import RUN_VERSION, prepare
from tpd.tracking.delivery import DELIVERY_STATE, deliver_all
from tpd.tracking.fetch import fetch
from tpd.tracking.mlflow_runs import MlflowTracking
from tpd.tracking.outbox import open_run

REFUSAL = f"was written by tpd 0.1.0, but this is tpd {__version__}"


def rewrite(path: Path, **changes: str | None) -> None:
    """Change entries of a JSON file, or take them out."""
    plain = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in plain.items() if value is not None}))


def test_patch_versions_are_read() -> None:
    own = __version__.rsplit(".", 1)[0]
    require_version("it", {WRITTEN_BY: f"{own}.99"})
    for version in ("0.1.0", "99.0.0", "", "nonsense"):
        with pytest.raises(VersionError, match="it was written by tpd"):
            require_version("it", {WRITTEN_BY: version})


@pytest.mark.parametrize("name", [STATUS, SWEEP])
def test_records_of_runs_and_sweeps(tmp_path: Path, name: str) -> None:
    write_record(tmp_path / name, status="running")
    require_own_version(tmp_path)
    rewrite(tmp_path / name, **{WRITTEN_BY: None})
    with pytest.raises(VersionError, match=REFUSAL):
        require_own_version(tmp_path)
    (tmp_path / saved_runs.CONFIG).touch()
    with pytest.raises(VersionError, match=REFUSAL):  # also where there is no explainer yet
        fetch(str(tmp_path), "sqlite:///none.db", tmp_path)


@pytest.mark.parametrize(
    ("flags", "old"),
    [([], STATUS), ([], SWEEP), (["-m"], STATUS), (["-m"], SWEEP), (["-m"], f"0/{STATUS}")],
)
def test_a_folder_is_refused_before_any_work(tmp_path: Path, flags: list[str], old: str) -> None:
    """The folder of a run or of a sweep, whichever is asked for; of a sweep also those of its jobs."""
    (tmp_path / "old" / old).parent.mkdir(parents=True)
    (tmp_path / "old" / old).write_text('{"status": "running"}')
    place = "hydra.sweep.dir" if flags else "hydra.run.dir"
    done = tpd_run(tmp_path, *flags, "tracking=none", f"{place}=old", check=False)
    assert done.returncode == 1
    said = (done.stdout + done.stderr).strip().splitlines()
    assert any(line.endswith(REFUSAL) and line.startswith(place) for line in said), said
    assert (tmp_path / "old" / old).read_text() == '{"status": "running"}'


def test_a_run_is_refused_by_its_explainer(tmp_path: Path) -> None:
    good_files.run(tmp_path)
    saved_runs.read(tmp_path)
    rewrite(tmp_path / saved_runs.EXPLAINER / explainers.DESCRIPTION, **{WRITTEN_BY: None})
    with pytest.raises(VersionError, match=REFUSAL):
        saved_runs.read(tmp_path)


@pytest.mark.parametrize("old", [DESCRIPTION, FIRST_DESCRIPTION])
def test_a_dataset(tmp_path: Path, old: str) -> None:
    good_files.shards(tmp_path)
    DatasetDescription.read(tmp_path)
    rewrite(tmp_path / DESCRIPTION, **{WRITTEN_BY: None})
    (tmp_path / DESCRIPTION).rename(tmp_path / old)
    with pytest.raises(VersionError, match=REFUSAL):
        DatasetDescription.read(tmp_path)
    with pytest.raises(
        ValueError, match=REFUSAL if old == FIRST_DESCRIPTION else "already contains a dataset"
    ):
        require_writable(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> MlflowTracking:
    return MlflowTracking(uri=f"sqlite:///{tmp_path}/mlflow.db", experiment="small")


def test_what_was_not_delivered(tmp_path: Path, store: MlflowTracking) -> None:
    with open_run(store, tmp_path / "run", "run", {}, {}) as run:
        run.metrics({"loss": 1.0})
    rewrite(tmp_path / "run" / DELIVERY_STATE, **{WRITTEN_BY: None})
    told: dict[Path, str] = {}
    tell: Callable[[Path, str], None] = told.__setitem__
    assert deliver_all(tmp_path, tell, lambda uri: True) == 1
    assert told[tmp_path / "run"].endswith(REFUSAL)


def test_a_store_with_runs_of_another_version(tmp_path: Path, store: MlflowTracking) -> None:
    client = MlflowClient(tracking_uri=store.uri)
    mine = prepare(store.uri, "mine")
    client.create_run(mine, tags={"mlflow.runName": "of somebody else"})
    client.create_run(mine, tags={RUN_VERSION: __version__})
    assert prepare(store.uri, "mine") == mine
    old = client.create_run(prepare(store.uri, "old"), tags={RUN_VERSION: "0.1.0"}).info.run_id
    for name in ("old", "mine", "new"):
        with pytest.raises(VersionError, match=f"the store {store.uri} {REFUSAL}: use another store"):
            prepare(store.uri, name)
    with pytest.raises(VersionError, match=f"run={old} {REFUSAL}"):
        fetch(old, store.uri, tmp_path)
