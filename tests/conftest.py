"""What many tests start from."""

import os
from collections.abc import Iterator

import pytest
from hydra import compose, initialize_config_dir
from hypothesis import settings
from matplotlib.figure import Figure
from omegaconf import DictConfig

from tests.support import Compose, stores
from tests.support.tracing import as_untraced, untraced
from tpd.envs import Environment
from tpd.run.configs import CONFIG_FOLDER
from tpd.run.parts import Parts, build
from tpd.tracking import backend_store

settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: tests share the cores already

LONGEST = (
    "test_experiment",
    "test_resume",
    "test_notebooks",
    "test_explainer",
    "test_configs",
    "test_pages",
    "test_explain",
    "test_outbox",
    "test_network",
    "test_doors",
    "test_wheel",
    "test_report",
    "test_rollouts",
    "test_agents",
    "test_callback",
    "test_network_returns",
    "test_checkpoints",
    "test_runs",
)
"""The files that take longest, which go first, so that no worker is left with them at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {stem: place for place, stem in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.stem, len(LONGEST)))


@pytest.fixture(scope="session", autouse=True)
def copied_stores() -> Iterator[None]:
    """Stores are made once and copied then, for most tests are not about making them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend_store, "_make", stores.copy)
        yield


@pytest.fixture(scope="session", autouse=True)
def untraced_figures() -> Iterator[None]:
    """Coverage does not look at how Matplotlib draws what it was given."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", as_untraced(Figure.savefig))
        yield


@pytest.fixture(autouse=True)
def made_stores(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test is about making a store, it is made."""
    if request.node.get_closest_marker("real_store"):
        monkeypatch.setattr(backend_store, "_make", stores.make)


@pytest.fixture
def compose_config() -> Compose:
    """Compose the project's config with overrides, as the command line would."""

    def composed(*overrides: str) -> DictConfig:
        with untraced(), initialize_config_dir(str(CONFIG_FOLDER), version_base="1.3"):
            return compose("config", overrides=list(overrides))

    return composed


@pytest.fixture
def fuel_taxi() -> Environment:
    return Environment("FuelTaxi-v0")


@pytest.fixture
def paper(compose_config: Compose) -> Parts:
    """The parts of the paper's experiment."""
    return build(compose_config("experiment=paper"))
