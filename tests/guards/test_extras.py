"""A world whose package is missing says in one line which extra installs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import Compose
from tpd.envs import Environment, environment
from tpd.guards.extras import EXTRAS, needed_by
from tpd.run.parts import ConfigError, make_env


@pytest.mark.parametrize(
    ("env", "package", "loaded", "message"),
    [
        ("door_key", "minigrid", (), "Maze-v0 needs the package minigrid, .*'tpd\\[maze\\]'"),
        (
            "lunar_lander",
            "Box2D",
            ("gymnasium.envs.box2d",),
            "LunarLander-v3 needs .* Box2D, .*'tpd\\[box2d\\]'",
        ),
        ("hopper", "mujoco", ("gymnasium.envs.mujoco",), "Hopper-v5 needs .* mujoco, .*'tpd\\[robots\\]'"),
        (
            "radio",
            "mobile_env",
            ("tpd.envs.radio",),
            "RadioNetwork-v0 needs .* mobile_env, .*'tpd\\[radio\\]'",
        ),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    env: str,
    package: str,
    loaded: tuple[str, ...],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    compose_config: Compose,
) -> None:
    for name in list(sys.modules):
        if any(name == root or name.startswith(f"{root}.") for root in (package, *loaded)):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=message) as refused:
        make_env(compose_config(f"env={env}"))
    assert "\n" not in str(refused.value)


def test_without_pygame_there_is_no_picture_and_one_line_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(environment, "_UNDRAWABLE", set())
    monkeypatch.setitem(sys.modules, "pygame", None)
    assert not Environment("CartPole-v1").drawable
    (said,) = caplog.messages
    assert "CartPole-v1 needs the package pygame" in said
    assert "pip install 'tpd[render]'" in said


def test_other_errors_stay_as_they_are() -> None:
    assert "numpy" not in EXTRAS
    for error in (ModuleNotFoundError("No module named 'numpy'", name="numpy"), ValueError("mujoco")):
        with pytest.raises(type(error)) as raised, needed_by("a world"):
            raise error
        assert raised.value is error


def test_a_renderer_of_mujoco_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    (tmp_path / "OpenGL").mkdir()
    (tmp_path / "OpenGL" / "__init__.py").write_text("raise AttributeError('no glGetError')")
    program = "from tpd.envs import Environment; Environment('Hopper-v5').check()"
    root = Path(__file__).parents[2]
    variables = {"MUJOCO_GL": "osmesa", "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    variables["PYOPENGL_PLATFORM"] = ""  # set where MuJoCo has chosen another renderer in this process
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, check=False)
    assert "cannot load OpenGL with MUJOCO_GL=osmesa: unset MUJOCO_GL" in done.stderr
