"""Fingerprints: other settings, code or files make another run."""

from pathlib import Path

import pytest

from tpd.store.fingerprints import fingerprint


def test_what_the_code_of_the_user_imports_is_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_named.py").write_text("from my_package.inner import low\nimport json, my_named")
    (tmp_path / "my_package").mkdir()
    (tmp_path / "my_package" / "__init__.py").write_text("")
    (tmp_path / "my_package" / "inner.py").write_text("import my_limits")
    (tmp_path / "unnamed.py").write_text("")
    settings = {"_target_": "my_named.low"}
    seen = {fingerprint(settings)}
    for path in ("my_limits.py", "my_package/inner.py", "my_named.py"):
        with (tmp_path / path).open("a") as file:
            file.write("\nLIMIT = 3")
        assert fingerprint(settings) not in seen
        seen.add(fingerprint(settings))
    (tmp_path / "unnamed.py").write_text("LIMIT = 3")
    assert fingerprint(settings) in seen


def test_other_code_or_files_of_the_user_make_another_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    module, agent, dataset = tmp_path / "my_own.py", tmp_path / "agent.zip", tmp_path / "dataset"
    settings = {
        "env": {"id": "my_own:Mine-v0"},
        "outcomes": [{"function": {"_target_": "my_own.low"}}, {"_target_": "tpd.core.outcomes.event"}],
        "policy": {"path": str(agent)},
        "training": {"path": str(dataset)},
    }
    dataset.mkdir()
    seen = set[str]()
    for path, content in (
        (module, "low = 1"),
        (module, "low = 2"),
        (agent, "weights"),
        (agent, "others!"),
        (dataset / "shard", "1"),
        (dataset / "shard", "12"),
    ):
        path.write_text(content)
        assert fingerprint(settings) == fingerprint(settings)
        assert fingerprint(settings) not in seen
        seen.add(fingerprint(settings))
