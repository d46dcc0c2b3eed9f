"""What `import tpd` offers: few names, each with an example that runs, and nothing heavy until it is used."""

import doctest
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tpd

NAMES = [name for name in tpd.__all__ if name != "__version__"]


def test_every_name_is_there_and_listed() -> None:
    assert {*NAMES} == {*tpd._HOMES}
    assert {*NAMES} <= {*dir(tpd)}
    assert len(NAMES) <= 25
    for name in NAMES:
        home = importlib.import_module(tpd._HOMES[name])
        assert getattr(tpd, name) is getattr(home, name)


def test_no_room_has_the_name_of_something_public() -> None:
    """A submodule, once imported, would overwrite it."""
    rooms = {path.stem for path in Path(tpd.__file__).parent.iterdir()}
    assert not rooms & {*NAMES}


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no attribute 'explain'"):
        tpd.explain  # noqa: B018


@pytest.mark.parametrize("name", [*NAMES, "tpd"])
def test_the_examples_of_its_docstring_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = tpd if name == "tpd" else getattr(tpd, name)
    text = shown.__doc__ or ""
    example = doctest.DocTestParser().get_doctest(text, {}, name, tpd.__file__, 0)
    assert example.examples
    failed, _ = doctest.DocTestRunner().run(example)
    assert not failed


def test_importing_it_imports_nothing_heavy() -> None:
    script = (
        "import sys; before = {*sys.modules}; import tpd; new = {n.partition('.')[0] for n in sys.modules}"
        "; print(sorted(new & {'numpy', 'torch', 'mlflow', 'matplotlib', 'pandas', 'hydra', 'gymnasium'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_misspelt_name_is_told_the_nearest_one() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'load_agents'; did you mean load_agent\?"):
        tpd.load_agents  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'nothing_like_it'$"):
        tpd.nothing_like_it  # noqa: B018
