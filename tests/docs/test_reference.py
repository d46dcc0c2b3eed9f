"""The pages that are made from the code name everything that there is, and the diagrams too."""

import re
import tomllib
from collections.abc import Callable

import docs_docstrings
import docs_site
import pytest
from mkdocs.config import load_config
from omegaconf import DictConfig, OmegaConf

import tpd
from tests.support.commands import ROOT
from tpd.run.configs import CONFIG_FOLDER

DOCS = ROOT / "docs"


def test_every_setting_of_a_run_is_in_its_table(compose_config: Callable[..., DictConfig]) -> None:
    """By Hydra's own reading of the configs, not by that of the script."""
    config = compose_config("experiment=cart_pole", "evaluation=monte_carlo")
    for group in ("training", "evaluation", "tracking"):
        page = docs_site.group_page(group)
        for key in OmegaConf.to_container(config[group]):  # type: ignore[union-attr]
            assert key == "_target_" or f"`{group}.{key!s}" in page, key
    for key in ("seed", "name", "overview", "checkpoint_seconds", "recording.episodes"):
        assert f"| `{key}` |" in docs_site.main_page()


@pytest.mark.parametrize("group", docs_site.GROUPS)
def test_every_option_is_shown_and_every_key_has_a_meaning(group: str) -> None:
    page = docs_site.group_page(group)
    options = {path.stem for path in (CONFIG_FOLDER / group).glob("*.yaml")}
    assert options == set(re.findall(r"^## (?!Keys)(\w+)", page, re.MULTILINE))
    assert not [line for line in page.splitlines() if line.startswith("| `") and line.endswith("|  |")]


def test_no_group_is_missing() -> None:
    folders = {str(path.parent.relative_to(CONFIG_FOLDER)) for path in CONFIG_FOLDER.rglob("*/*.yaml")}
    assert folders == {*docs_site.GROUPS}


def test_a_comment_is_read_beside_its_key() -> None:
    text = "# What it is.\n_target_: a.B\nsteps: 3 # of it\ninner:\n  rate: [1, 2]\nmany:\n  - x: 1\n"
    assert docs_site.description(text) == "What it is."
    found = [(each.key, each.default, each.comment) for each in docs_site.settings(text)]
    assert found == [("steps", "3", "of it"), ("inner.rate", "[1, 2]", "")]


def test_every_command_has_a_section_with_its_help() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    named = {name: f"{module}:{function}" for name, (module, function, _) in docs_site.COMMANDS.items()}
    assert named == scripts
    assert "register=true" in docs_site.said("tpd.run.cli", "sync")  # has no --help, but a usage
    assert "mcpServers" in docs_site.said("tpd.assistants.cli", "main")


def test_the_python_reference_names_all_of_tpd() -> None:
    page = (DOCS / "reference" / "api.md").read_text()
    shown = set(re.findall(r"^::: tpd\.(\w+)$", page, re.MULTILINE))
    assert shown == {name for name in tpd.__all__ if name != "__version__"}


def test_a_docstring_becomes_a_list_and_code() -> None:
    text = "Explains.\n\nsteps: how many\n    of them.\n\n>>> 1 + 1\n2\n"
    assert docs_docstrings.as_markdown(text) == (
        "Explains.\n\n\n- `steps`: how many of them.\n\n```pycon\n>>> 1 + 1\n2\n```\n"
    )


def test_the_diagram_shows_the_rooms_in_the_order_of_their_layers() -> None:
    (contract,) = (
        each
        for each in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
        if each["type"] == "layers"
    )
    drawn = re.findall(r'font-weight="600"[^>]*>(\w+)<', (DOCS / "images" / "rooms.svg").read_text())
    assert drawn == contract["layers"]


def test_the_site_loads_nothing_from_the_web() -> None:
    config = load_config(str(ROOT / "mkdocs.yml"))
    assert config.theme["font"] is False
    assert not [url for url in config.extra["polyfills"] if url.startswith("http")]
    assert not [str(url) for url in [*config.extra_css, *config.extra_javascript] if "://" in str(url)]
