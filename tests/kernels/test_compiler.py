"""The compiler takes nothing from the working directory."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
import sys
sys.path.insert(0, "")
{before}
from tpd.kernels.windows import read_windows
import numba
numba.core.config.reload_config()
print(read_windows._cache.cache_path, numba.config.CACHE_DIR, numba.config.DISABLE_JIT)
"""
SETTINGS = {
    "a cache": "CACHE_DIR: ./cache\nDISABLE_JIT: 1\n",
    "a module": "CUDA_USE_NVIDIA_BINDING: 1\n",
    "another locator": "CACHE_LOCATOR_CLASSES: cuda.Locator\n",
    "a list": "[1]\n",
    "no YAML": "{",
}


def looked(folder: Path, home: Path, before: str = "") -> str:
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-c", LOOK.format(before=before)],
        cwd=folder,
        env=env | {"XDG_CACHE_HOME": str(home)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_settings_in_the_working_directory_are_not_read(tmp_path: Path, settings: str) -> None:
    here, home = tmp_path / "here", tmp_path / "home"
    here.mkdir()
    (here / ".numba_config.yaml").write_text(settings)
    (here / "cuda.py").write_text("open('ran', 'w')")
    place, chosen, disabled = looked(here, home).split()
    assert chosen == str(home / "tpd" / "numba")
    assert place.startswith(chosen)
    assert disabled == "0"
    assert sorted(path.name for path in here.iterdir()) == [".numba_config.yaml", "cuda.py"]
    assert stat.S_IMODE((home / "tpd" / "numba").stat().st_mode) == 0o700


def test_settings_that_were_read_before_are_dropped(tmp_path: Path) -> None:
    (tmp_path / ".numba_config.yaml").write_text("CACHE_DIR: ./cache\nDISABLE_JIT: 1\n")
    _, chosen, disabled = looked(tmp_path, tmp_path / "home", before="import numba").split()
    assert (chosen, disabled) == (str(tmp_path / "home" / "tpd" / "numba"), "0")


def test_a_cache_that_others_can_write_to_is_not_used(tmp_path: Path) -> None:
    folder = tmp_path / "tpd" / "numba"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    _, chosen, _ = looked(tmp_path, tmp_path).split()
    assert chosen != str(folder)
    assert not Path(chosen).exists()  # it was for that process only
    assert not list(folder.iterdir())


@pytest.mark.parametrize("settings", [b"text.usetex: True\nbackend: module://cuda\n", b"\xff\xfe\x00"])
def test_settings_of_plots_in_the_working_directory_are_not_read(tmp_path: Path, settings: bytes) -> None:
    (tmp_path / "matplotlibrc").write_bytes(settings)
    script = "import tpd.show.maps, matplotlib as mpl; print(mpl.rcParams['text.usetex'])"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("False\n", "")
