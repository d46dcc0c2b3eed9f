"""Stored configs: modules of strangers are imported only where the user trusts them by name."""

import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tpd.store.stored_configs import UntrustedError, make_env

MODULE = """
import gymnasium as gym
from gymnasium.envs.classic_control import CartPoleEnv

gym.register(id="Strange-v0", entry_point="strange_env:Strange", max_episode_steps=9)

class Strange(CartPoleEnv):
    pass
"""


def test_an_environment_is_imported_from_a_module_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "strange_env.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    config = OmegaConf.create({"env": {"_target_": "tpd.envs.Environment", "id": "strange_env:Strange-v0"}})
    for trusted in ((), ("strange",), ("os",)):
        with pytest.raises(UntrustedError, match=r"needs 'strange_env', .*trust=\[strange_env\]"):
            make_env(config, trusted)
        assert "strange_env" not in sys.modules
    assert make_env(config, ("strange_env",)).make().spec.max_episode_steps == 9  # type: ignore[union-attr]
