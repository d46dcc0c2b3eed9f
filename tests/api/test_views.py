"""One question has one answer, wherever it is asked."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import tpd
from tpd.answers.answer import Answer
from tpd.core.types import Array
from tpd.run import explain
from tpd.show.report import contents
from tpd.store import saved_runs
from tpd.tracking.served_model import ServedExplainer, _load_pyfunc

STEP = 1


def downwards(states: Array) -> Array:
    return np.where(np.asarray(states) % 4 == 0, 1, 2)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An exact explainer of a walk on ice, with an episode."""
    explainer = tpd.Explainer(downwards, env="FrozenLake-v1", horizon=6)
    explainer.learn(100, overrides=["explainer=exact", "evaluation=none"], progress=False)
    explainer.play(seeds=[3])
    folder = tmp_path_factory.mktemp("views")
    explainer.save(folder)
    return folder


@pytest.fixture(scope="module")
def answer(folder: Path) -> Answer:
    explainer = tpd.load(folder)
    return explainer.why(explainer.play(seeds=[3])[0][STEP], foil=0, rollouts=0)


def _sentence(answer: Answer) -> str:
    (said,) = answer.sentences
    assert answer.own == answer.fact.name != "action 0"
    return said


def test_the_command_line_says_what_python_says(
    folder: Path, answer: Answer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    explain.main([f"run={folder}", "episode=0", f"step={STEP}", "foil=0", "rollouts=0", f"out={tmp_path}"])
    assert _sentence(answer) in re.sub(r"\s+", " ", capsys.readouterr().out)


def test_a_plain_answer_imports_nothing_that_it_does_not_need(folder: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from tpd.run.cli import explain; explain()"
        "; print({name.partition('.')[0] for name in sys.modules} & {'pandas', 'scipy', 'hydra', 'mlflow'})"
    )
    words = [f"run={folder}", "state=4", "rollouts=0", f"out={tmp_path}"]
    command = [sys.executable, "-c", script, *words]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_the_report_says_it_too(folder: Path, answer: Answer) -> None:
    shown = contents.gather(saved_runs.read(folder), [0])
    entry = shown.arrays["steps"][STEP]
    assert shown.metadata["sentences"][entry][0] == _sentence(answer)
    assert answer.foil is not None
    pair = shown.arrays["options"][shown.arrays["entries"][entry, 0], 0]
    counts = contents._counts(answer.foil.explanation)[0]
    np.testing.assert_allclose(shown.arrays["counts"][pair], counts, rtol=1e-14)


def test_the_served_model_says_it_too(folder: Path, answer: Answer) -> None:
    fact = answer.fact.explanation
    model = _load_pyfunc(str(folder / "explainer"))
    assert isinstance(model, ServedExplainer)
    asked = pd.DataFrame({"state": fact.observations, "action": fact.actions, "foil": [0]})
    served = model.predict(asked, {"text": True})
    assert [said for said in served["text"] if said] == [_sentence(answer)]
    assert "text" not in model.predict(asked)
    given, contrast = answer.to_frame(), served[served["role"] == "contrast"]
    for name in fact.legend.names:
        due = given.loc[given["outcome"] == name, "difference"]
        np.testing.assert_array_equal(contrast[name].astype(float), due)
