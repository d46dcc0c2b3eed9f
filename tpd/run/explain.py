"""The command `tpd-explain`: prints an answer as sentences and tables, and saves its plots."""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tpd.answers import what_if
from tpd.answers.answer import Answer
from tpd.answers.asked import column_of
from tpd.core.bands import ENOUGH_DRAWS
from tpd.core.explanation import Explanation, together
from tpd.core.types import Array, FloatArray
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.returns import predicts_returns
from tpd.run.answering import answered
from tpd.run.fact_and_foil import Compared, fact_and_foil, valid_actions
from tpd.run.question import HELP, Question, QuestionError, parse
from tpd.show import answer_tables, endless_tables, fragile_tables, maps
from tpd.show.atlas import Atlas, MapSpec
from tpd.show.console import show
from tpd.show.what_if_plots import against_reward, fragile, return_distributions
from tpd.sources.episodes import Recording
from tpd.sources.named_states import NamedState
from tpd.store import saved_runs
from tpd.store.explanations import save_explanation
from tpd.store.saved_runs import SavedRun
from tpd.tracking.fetch import fetch

MOST_SIMULATED = 200
"""Upper bound on states searched for a what-if if every explanation is simulated."""


def main(arguments: Sequence[str]) -> None:
    """Parse the arguments, print the answer, and write its files."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return
    try:
        with tempfile.TemporaryDirectory() as folder:
            answer(parse(arguments), Path(folder))
    except (ValueError, OSError) as error:
        sys.exit(str(error))


def answer(question: Question, scratch: Path) -> None:
    """Load the run, answer the question, print the answer and draw it."""
    run = saved_runs.read(fetch(question.run, question.store, scratch / "run"), question.trust)
    if question.open and run.recording is not None:
        from tpd.run.moments import worth_asking  # pandas is slow to import; a plain answer does without

        print(worth_asking(question, run))
        return
    _check_names(question, run)
    fact, foil = fact_and_foil(question, run, scratch)
    out = Path(question.out or f"outputs/answers/{time.strftime('%Y-%m-%d_%H-%M-%S')}")
    out.mkdir(parents=True, exist_ok=True)
    told = answered(fact, foil, question.what_if)
    _tell(told, run.name, out, _switch(told, run))
    if question.drivers is not False:
        _drivers(question, told, out)
    if run.env.discrete and question.against is None and question.foil_state is None:
        _rank(question, fact, out)
    print(f"plots: {out}")


def _check_names(question: Question, run: SavedRun) -> None:
    """Refuse unknown rewards and events before anything is printed."""
    if isinstance(question.drivers, str):
        column_of(run.explainer.legend, question.drivers)
    asked = dict(question.rewards)
    if question.what_if is not None:
        asked.setdefault(question.what_if, 0.0)
    if asked or question.resolve:
        what_if.with_rewards(run.explainer.legend, asked)


def _switch(told: Answer, run: SavedRun) -> list[str]:
    """The nearest state where the agent takes the foil, if it is found without playing new episodes."""
    at_hand = run.env.tabular or run.recording is not None
    if told.asked is None or told.asked.foil is None or not at_hand:
        return []
    nearest = told.nearest_state()
    return [] if nearest.withheld else [nearest.text]


def _drivers(question: Question, told: Answer, out: Path) -> None:
    """The drivers of the learned forecast of an event, and of its difference between fact and foil."""
    event = None if question.drivers is True else str(question.drivers)
    both = told.asked is not None and told.asked.foil is not None
    for against_foil in (False, True) if both else (False,):
        found = told.drivers(event, question.by, against_foil)
        print(f"{found.text}\n")
        if not found.withheld:
            found.plot().savefig(out / ("drivers_against_foil.png" if against_foil else "drivers.png"))


def _tell(told: Answer, run: str, out: Path, further: Sequence[str]) -> None:
    """Print the answer as sentences and tables; write its figure and its file."""
    begin = "\n".join([f"{run}: {told.place}", str(told.how), *told.actions, *told.remarks])
    print("\n\n".join([begin, *told.sentences, *further]) + "\n")
    contrast, explanations = told.contrast, [side.explanation for side in told.sides]
    if contrast is not None and told.foil is not None:
        tables = endless_tables if contrast.fact.endless else answer_tables
        show(tables.comparison(contrast, told.fact.name, told.foil.name))
    for warning in told.warnings:
        print(warning)
    judged = [side for side in told.sides if side.learned is not None]
    if learned := [side.learned for side in judged if side.learned is not None]:
        print()
        rolled_out = [side.explanation for side in judged]
        names = [side.name for side in judged]
        if not learned[0].endless:
            show(answer_tables.learned_beside(names, rolled_out, learned))
        elif len(learned) > 1:
            show(endless_tables.comparison(learned[0] - learned[1], *(f"{name}, learned" for name in names)))
    told.plot().savefig(out / "explanation.png", pil_kwargs={"compress_level": 1})  # level 6 is much slower
    save_explanation(together(explanations), out / "explanation.npz")


def _rank(question: Question, fact: Compared, out: Path) -> None:
    """Rank all valid actions in this state by their return, under the current and the changed rewards."""
    run = fact.run
    if run.explainer.legend.reward_bound is None:
        return
    actions = np.array(valid_actions(run, fact.state))
    names = [run.env.name_of_action(action) for action in actions]
    explanation = fact.expectations.explain(actions, draws=ENOUGH_DRAWS)
    worth = "return, infinite horizon" if explanation.endless else "return"
    under: dict[str, Mapping[str, float]] = {worth: {}}
    if question.rewards:
        under["with these rewards"] = question.rewards
    columns = {name: what_if.returns(explanation, rewards) for name, rewards in under.items()}
    bands = {name: what_if.return_band(explanation, rewards) for name, rewards in under.items()}
    if question.resolve:
        horizon = f" within {explanation.horizon} steps" if explanation.endless else ""
        columns[f"re-solved{horizon}"] = _resolved_returns(run, question.rewards, fact.state, actions)
    own = None if fact.own is None else run.env.name_of_action(fact.own)
    columns |= _observed_returns(fact, names, explanation, out)
    told = explanation.told.returns[:, -1]
    columns = {name: np.where(told, column, np.nan) for name, column in columns.items()}
    show(answer_tables.ranking(names, columns, bands, own, explanation, question.rewards))
    if question.rewards:
        print("the rest of the policy is unchanged, except in the column re-solved\n")
    if question.what_if is not None:
        _what_if(run, question.what_if, names, explanation, out)


def _observed_returns(
    fact: Compared, names: Sequence[str], explanation: Explanation, out: Path
) -> dict[str, FloatArray]:
    """Columns [action]: tails of the return distribution, if rollouts or the predictor provide it."""
    if fact.expectations.simulated:
        return answer_tables.rolled_out_columns(explanation)
    returns = predicts_returns(fact.run.explainer)
    observed = None if returns is None else returns.returns(explanation.observations, explanation.actions)
    if observed is None or not explanation.told.returns[:, -1].all():
        return {}
    return_distributions(names, observed).savefig(out / "returns.png")
    return answer_tables.observed_columns(observed)


def _resolved_returns(
    run: SavedRun, rewards: Mapping[str, float], state: NamedState, actions: Array
) -> FloatArray:
    """[action]: returns to the horizon under the optimal policy for these rewards."""
    from tpd.answers.resolve import resolve  # scipy's solvers are slow to import and rarely needed

    model, outcomes = run.model(), run.outcomes()
    if model is None:
        raise QuestionError(
            f"the dynamics of {run.env.id} are unknown, so no optimal policy can be computed: omit "
            "resolve=true"
        )
    optimal = resolve(model, outcomes, rewards, run.explainer.policy.discount)
    exact = ExactSolution(run.env, optimal, outcomes, horizon=run.explainer.predictor.horizon, model=model)
    anew = replace(run, explainer=Explainer(exact, optimal, what_if.with_rewards(outcomes.legend, rewards)))
    here = np.repeat(state.observation, len(actions), axis=0)
    return what_if.returns(anew.explainer.explain(here, actions), {})


def _what_if(run: SavedRun, outcome: str, names: Sequence[str], explanation: Explanation, out: Path) -> None:
    """Plot returns against one reward in this state; list recorded states where another action overtakes."""
    now = what_if.reward_of(explanation.legend, outcome)
    around = what_if.rewards_around(explanation.legend, outcome)
    best = what_if.best_actions(explanation, outcome, *around)
    untold = np.isnan(what_if.returns_and_counts(explanation, outcome)[1])
    if left_out := ", ".join(name for name, missing in zip(names, untold, strict=True) if missing):
        why = f"the return or the number of {outcome} is unknown or not learned"
        print(f"not compared, because {why}: {left_out}")
    for low, high, row in best:
        said = "the data do not say which action" if row is None else names[row]
        print(f"  reward of {outcome} from {low:8.4g} to {high:8.4g}: {said} has the highest return")
    against_reward(outcome, names, explanation, now, best).savefig(out / f"what_if_{outcome}.png")
    if run.recording is not None:
        _fragile_states(run, run.recording, outcome, now, out)
    if (spec := MapSpec.from_config(run.maps, run.env)) is not None:
        atlas = Atlas.explore(run.explainer, run.env, spec)
        found = what_if.fragility(run.explainer, run.env, atlas.explanation.observations, outcome)
        change = np.where(found.rival < 0, np.inf, np.abs(found.reward - now))
        moves = np.where((found.best < 0) | found.uncertain, np.nan, change)
        maps.fragile_map(atlas, outcome, now, moves).savefig(out / f"fragile_map_{outcome}.png")


def _fragile_states(run: SavedRun, recording: Recording, outcome: str, now: float, out: Path) -> None:
    """List the recorded states where a small change of the reward lets another action overtake."""
    met = np.unique(recording.episodes.transitions.observation, axis=0)
    some = f"in {len(met)} states of the recorded episodes"
    if run.explainer.simulates and len(met) > MOST_SIMULATED:  # each explanation takes many milliseconds
        some = f"in {MOST_SIMULATED} of the {len(met)} states of the recorded episodes"
        met = met[np.linspace(0, len(met) - 1, MOST_SIMULATED).astype(np.int64)]
    found = what_if.fragility(run.explainer, run.env, met, outcome)
    if (found.best < 0).all():
        print(f"{some}: no result, because the return or the count of {outcome} is not predicted\n")
        return
    rows, uncertain = fragile_tables.most_fragile(run.env, met, found, now), int(found.uncertain.sum())
    if not rows:
        doubt = f"; in {uncertain} of them the data do not say whether one does" if uncertain else ""
        print(f"{some}: no other action is found to overtake at another reward of {outcome}{doubt}\n")
        return
    fragile(outcome, now, found).savefig(out / f"fragile_{outcome}.png")
    show(fragile_tables.fragile_table(outcome, rows, f"{some} ({found.obtained})", uncertain))
    (out / f"fragile_{outcome}.json").write_text(json.dumps(rows, indent=2))
