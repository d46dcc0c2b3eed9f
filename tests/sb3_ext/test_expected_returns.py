"""What an agent should reach: as given, by evaluations beside its zip, or by its last training episodes."""

import base64
import json
import pickle
import zipfile
from pathlib import Path

import numpy as np
import pytest
from stable_baselines3 import PPO

from sb3_ext.expected_returns import expected_return, training_returns


@pytest.fixture(scope="module")
def zipped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """An agent that was trained for a moment, and the mean return of its last episodes."""
    path = tmp_path_factory.mktemp("agent") / "ppo.zip"
    model = PPO("MlpPolicy", "CartPole-v1", n_steps=128, seed=0, device="cpu").learn(512)
    model.save(path)
    assert model.ep_info_buffer is not None
    return path, float(np.mean([episode["r"] for episode in model.ep_info_buffer]))


def test_the_last_episodes_of_the_training_are_read_from_the_zip(zipped: tuple[Path, float]) -> None:
    path, mean = zipped
    found = expected_return(path, None)
    assert found is not None
    assert found.mean == pytest.approx(mean)
    assert "episodes of its training" in found.source


def test_evaluations_beside_it_come_first_and_what_is_given_before_all(
    zipped: tuple[Path, float], tmp_path: Path
) -> None:
    for name in ("ppo.zip", "best_model.zip"):
        (tmp_path / name).write_bytes(zipped[0].read_bytes())
    np.savez(tmp_path / "evaluations.npz", results=np.array([[100.0, 300.0], [40.0, 60.0]]), timesteps=[1, 2])
    last, best = (expected_return(tmp_path / name, None) for name in ("ppo.zip", "best_model.zip"))
    assert last is not None
    assert best is not None
    assert (last.mean, best.mean) == (50, 200)
    given = expected_return(tmp_path / "ppo.zip", 475)
    assert given == (475, "policy.expected_return")
    with pytest.raises(ValueError, match="expected_return must lie in"):
        expected_return(tmp_path / "ppo.zip", float("nan"))


def test_a_zip_that_says_nothing_or_lies_has_no_expected_return(
    zipped: tuple[Path, float], tmp_path: Path
) -> None:
    """And nothing that is pickled in it is run."""

    class Dangerous:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "touched",)  # type: ignore[return-value]

    contents = {
        "dangerous": base64.b64encode(pickle.dumps([Dangerous()])).decode(),
        "not a pickle": "AAAA",
        "no returns": base64.b64encode(pickle.dumps([{"l": 3}])).decode(),
    }
    for name, serialized in contents.items():
        path = tmp_path / f"{name}.zip"
        with zipfile.ZipFile(zipped[0]) as source, zipfile.ZipFile(path, "w") as target:
            for entry in source.namelist():
                data = source.read(entry)
                if entry == "data":
                    plain = json.loads(data)
                    plain["ep_info_buffer"] = {":serialized:": serialized}
                    data = json.dumps(plain).encode()
                target.writestr(entry, data)
        returns = training_returns(path)
        assert returns is None or not len(returns)
        assert expected_return(path, None) is None
    assert not (tmp_path / "touched").exists()
