"""A saved explainer as an MLflow model, loaded from arrays and JSON, without pickle."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from mlflow.exceptions import MlflowException
from mlflow.models.signature import ModelSignature
from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema, TensorSpec
from mlflow.types.schema import AnyType

from tpd.answers.batch import Answers, Choice
from tpd.core.contrast import Contrast
from tpd.core.explanation import Explained
from tpd.core.observations import numbers
from tpd.core.outcomes import Legend
from tpd.core.pairs import NO_PAIR
from tpd.core.types import Array, FloatArray, IntArray
from tpd.guards.settings import boolean, shown
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.explainer import Explainer
from tpd.store import explainers, run_descriptions
from tpd.store.learned_models import as_far_as_possible
from tpd.store.run_descriptions import Actions
from tpd.tracking.served_requests import ACTION, FOIL, STATE, TEXT, Asked, Questions, questions
from tpd.tracking.served_values import Numbered

FACT, CONTRAST = "fact", "contrast"
ROW, ROLE, STEP, SUPPORT, UNKNOWN, RETURN = "row", "role", "step", "support", "unknown", "return"

Columns = list[ColSpec | TensorSpec]


class ServedExplainer:
    """Answers rows of `state`, `action` and, optionally, `foil`.

    The answer has one line per row, role and step ahead: the expected outcomes of the `fact` and, if a foil
    is given, those of the `foil` and of the `contrast`, which is fact minus foil. `support` is the number of
    times the state-action pair was tried, null if it is known exactly. If it is 0, nothing is known, and the
    outcomes are null; so are outcomes that were not learned. `unknown` is the probability of having reached
    an untried pair by this step; the outcomes cover the remaining futures only. `return` is the discounted
    reward so far. A contrast has the support and unknown of the less known side. With the parameter `text`, a
    column of that name holds the sentences, at step 0 of the fact.
    """

    def __init__(self, explainer: Explainer, asked: Questions, names: Sequence[str] = ()) -> None:
        self.explainer, self.questions = explainer, asked
        count = asked.actions.count if isinstance(asked.actions, Numbered) else 0
        names = list(names) or [f"action {action}" for action in range(count)]
        if count and len(names) != count:
            raise ValueError(f"there are {count} actions but {len(names)} names: {shown(names)}")
        self.actions = Actions(numbered=count > 0, names=names)

    def predict(self, model_input: pd.DataFrame, params: dict[str, Any] | None = None) -> pd.DataFrame:
        """The answers, in the order of the rows."""
        try:
            said = boolean(TEXT, (params or {}).get(TEXT, False))
            asked = self.questions.read(model_input)
            asked.check_size(self.explainer.predictor.horizon, len(self.explainer.legend.names))
        except ValueError as error:
            raise MlflowException.invalid_parameter_value(str(error)) from error
        answers = self.answers(asked)
        fact, rows, contrasted = answers.facts, np.arange(len(answers)), answers.contrasted
        parts = [_lines(FACT, rows, asked.actions, fact, fact.support)]
        if said:
            parts[0].loc[parts[0][STEP] == 0, TEXT] = answers.sentences
        if len(contrasted):
            both, foil = answers.contrast, answers.foils
            weaker = np.minimum(both.fact.support, foil.support)
            parts += [
                _lines(FOIL, contrasted, asked.foils, foil, foil.support),
                _lines(CONTRAST, contrasted, both.fact.actions, both, weaker),
            ]
        answer = pd.concat(parts).sort_values(ROW, kind="stable", ignore_index=True)
        gaps = [column for column in answer if answer[column].isna().any()]
        # JSON has null, but not NaN
        return answer.astype(dict.fromkeys(gaps, object)).where(answer.notna(), None) if gaps else answer

    def answers(self, asked: Asked) -> Answers:
        """The answers as records."""
        fact = self.explainer.explain(asked.states, asked.actions)
        foil, contrasted = fact, np.flatnonzero(asked.contrasted)
        if len(contrasted):
            foil = self.explainer.explain(asked.states[contrasted], asked.foils)
        foils = np.full(len(asked.states), NO_PAIR)
        foils[contrasted] = np.arange(len(contrasted))
        return Answers(
            facts=fact,
            foils=foil,
            fact=np.arange(len(asked.states)),
            foil=foils,
            choices=self._choices(asked, foils),
            tie=self.explainer.predictor.tie,
            reason="a served model has no simulator",
        )

    def _choices(self, asked: Asked, foils: IntArray) -> list[Choice]:
        """A description of each row. The valid actions are unknown here, so no third action is named."""
        policy, name = self.explainer.policy, self.actions.name
        owns = None if isinstance(policy, AbsentPolicy) else policy.action(asked.states)
        return [
            Choice(
                f"state {numbers(state)}",
                name(asked.actions[row]),
                None if foil == NO_PAIR else name(asked.foils[foil]),
                None if owns is None else name(owns[row]),
            )
            for row, (state, foil) in enumerate(zip(asked.states, foils.tolist(), strict=True))
        ]


def _lines(role: str, rows: IntArray, actions: Array, about: Explained, support: FloatArray) -> pd.DataFrame:
    """One line per row and step ahead."""
    legend = about.fact.legend if isinstance(about, Contrast) else about.legend
    pairs, steps = np.indices(about.expected.shape[:2]).reshape(2, -1)
    expected = np.where(about.known[:, None, None] & about.told.at, about.expected, np.nan)
    columns: dict[str, Any] = {ROW: rows[pairs], ROLE: role, ACTION: actions[pairs].tolist(), STEP: steps}
    for k, name in enumerate(outcome_columns(legend)):
        columns[name] = expected[:, :, k].ravel()
    if legend.reward_bound is not None:
        known = about.known[:, None] & about.told.returns
        columns[RETURN] = np.where(known, about.expected_return, np.nan).ravel()
    columns[SUPPORT] = np.where(np.isinf(support), np.nan, support)[pairs]
    columns[UNKNOWN] = about.unknown.ravel()
    return pd.DataFrame(columns)


def outcome_columns(legend: Legend) -> list[str]:
    """The column names of outcomes: their own names, prefixed if the answer uses them itself."""
    own = (ROW, ROLE, ACTION, STEP, RETURN, SUPPORT, UNKNOWN, TEXT)
    return [f"outcome {name}" if name in own else name for name in legend.names]


def signature(folder: Path) -> ModelSignature:
    """The MLflow signature of the saved explainer in a folder.

    Inputs have any type: with a narrower one, MLflow would refuse rows without naming them, and would refuse
    to mix rows with and without a foil.
    """
    any_type = AnyType()  # type: ignore[no-untyped-call]
    legend = explainers.load(folder, with_agent=False).legend
    rewards = [] if legend.reward_bound is None else [RETURN]
    asked: Columns = [ColSpec(any_type, name, required=name != FOIL) for name in (STATE, ACTION, FOIL)]
    answered: Columns = [
        ColSpec(DataType.long, ROW),
        ColSpec(DataType.string, ROLE),
        ColSpec(any_type, ACTION),
        ColSpec(DataType.long, STEP),
        *(ColSpec(DataType.double, name, required=False) for name in outcome_columns(legend)),
        *(ColSpec(DataType.double, name, required=False) for name in rewards),
        ColSpec(DataType.double, SUPPORT, required=False),
        ColSpec(DataType.double, UNKNOWN),
        ColSpec(DataType.string, TEXT, required=False),
    ]
    params = ParamSchema([ParamSpec(TEXT, DataType.boolean, default=False)])
    return ModelSignature(inputs=Schema(asked), outputs=Schema(answered), params=params)


def _load_pyfunc(path: str) -> ServedExplainer:
    """Called by MLflow."""
    if "mlflow.pyfunc.scoring_server" in sys.modules:  # otherwise there are no requests
        from tpd.tracking.scoring_server import guard

        guard()
    folder = Path(path)
    explainer, asked = explainers.load(folder, with_agent=False), questions(folder)
    assert asked is not None  # load() has already refused what cannot be served
    explainer.predictor = as_far_as_possible(explainer.predictor)
    named = (folder / run_descriptions.RUN).exists()
    return ServedExplainer(explainer, asked, run_descriptions.read(folder).actions.names if named else ())
