"""Answering: sentences, tables and plots of what a run expects."""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tpd.answers import what_if
from tpd.answers.resolve import resolve
from tpd.answers.sentences import compare
from tpd.answers.sentences.describe import describe
from tpd.answers.sentences.learned import learned_instead
from tpd.core.explanation import Contrast, Explanation, together
from tpd.core.types import Array, FloatArray
from tpd.guards.sizes import TooLargeError
from tpd.predictors.exact import ExactSolution
from tpd.predictors.explainer import Explainer
from tpd.predictors.replayed.returns import predicts_returns
from tpd.run.fact_and_foil import Compared, fact_and_foil, valid_actions
from tpd.run.question import HELP, Question, QuestionError, parse
from tpd.show import answer_tables, maps
from tpd.show.atlas import Atlas, MapSpec
from tpd.show.figures import page
from tpd.show.tables import show
from tpd.show.what_if_plots import against_reward, fragile, return_distributions
from tpd.sources.episodes import Recording
from tpd.sources.named_states import NamedState
from tpd.store import saved_runs
from tpd.store.explanations import save_explanation
from tpd.store.saved_runs import SavedRun
from tpd.tracking.fetch import fetch

MOST_SIMULATED = 200
"""States that are looked at for a what-if, where every answer is simulated."""


def main(arguments: Sequence[str]) -> None:
    """Answer in the terminal and as files."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(HELP)
        return
    try:
        with tempfile.TemporaryDirectory() as folder:
            answer(parse(arguments), Path(folder))
    except (ValueError, OSError, TooLargeError) as error:
        sys.exit(str(error))


def answer(question: Question, scratch: Path) -> None:
    """Find what is asked for, say it, and draw it."""
    run = saved_runs.read(fetch(question.run, question.store, scratch / "run"), question.trust)
    _check_rewards(question, run)
    fact, foil = fact_and_foil(question, run, scratch)
    out = Path(question.out or f"outputs/answers/{time.strftime('%Y-%m-%d_%H-%M-%S')}")
    out.mkdir(parents=True, exist_ok=True)
    if foil is None:
        _tell_alone(fact, out)
    else:
        _tell_both(question, fact, foil, out)
    if run.env.discrete and question.against is None and question.foil_state is None:
        _rank(question, fact, out)
    print(f"plots: {out}")


def _check_rewards(question: Question, run: SavedRun) -> None:
    """Refuse rewards that there are not, before anything is said."""
    asked = dict(question.rewards)
    if question.what_if is not None:
        asked.setdefault(question.what_if, 0.0)
    if asked or question.resolve:
        what_if.with_rewards(run.explainer.legend, asked)


def _tell_alone(fact: Compared, out: Path) -> None:
    """What is expected where there is no choice."""
    explanation = fact.explain()
    said = [describe(explanation, 0, fact.name), "There is no other valid action here."]
    print(f"{fact.run.name}: {fact.state.name}\n{_obtained(fact, explanation)}\n\n{' '.join(said)}\n")
    name = f"{fact.state.name}: {fact.action_name}"
    title = f"{fact.name}, {explanation.obtained}"
    page(title, explanation, [name], [fact.state.picture], said).savefig(out / "explanation.png")
    save_explanation(explanation, out / "explanation.npz")
    _tell_learned([fact], [explanation])


def _tell_both(question: Question, fact: Compared, foil: Compared, out: Path) -> None:
    """What is expected of both, and how they differ."""
    contrast = fact.explain() - foil.explain()
    here = fact.state.name if fact.state.name == foil.state.name else f"{fact.state.name} and elsewhere"
    said = _said(question, fact, foil, contrast)
    both = together([contrast.fact, contrast.foil])
    print("\n\n".join([f"{fact.run.name}: {here}\n{_obtained(fact, both)}", *said]) + "\n")
    show(answer_tables.comparison(contrast, fact.name, foil.name))
    _tell_learned([fact, foil], [contrast.fact, contrast.foil])
    figure = page(
        f"{fact.name} against {foil.name}, {both.obtained}",
        both,
        [f"{side.state.name}: {side.action_name}" for side in (fact, foil)],
        [side.state.picture for side in (fact, foil)],
        said,
        f"{fact.name} minus {foil.name}",
    )
    figure.savefig(out / "explanation.png")
    save_explanation(both, out / "explanation.npz")


def _obtained(fact: Compared, explanation: Explanation) -> str:
    """How the numbers of the answer were obtained."""
    if fact.expectations.simulated:
        return f"asked of the simulator, {explanation.obtained}"
    return f"{explanation.obtained}; the simulator was not asked: {fact.expectations.reason}"


def _tell_learned(sides: Sequence[Compared], rolled_out: Sequence[Explanation]) -> None:
    """What was learned beside what was rolled out, and how far off it is."""
    if all(side.expectations.simulated for side in sides):
        learned = [side.learned() for side in sides]
        for side, true, guess in zip(sides, rolled_out, learned, strict=True):
            print(learned_instead(true, guess, side.name))
        print()
        show(answer_tables.learned_beside([side.name for side in sides], rolled_out, learned))


def _said(question: Question, fact: Compared, foil: Compared, contrast: Contrast) -> list[str]:
    """The paragraphs of the answer."""
    same_place = question.against is None and question.foil_state is None
    chosen, best = None, None
    tie = fact.expectations.tie
    if same_place and fact.own is not None:
        chosen = fact.run.env.name_of_action(fact.own)
        best = _favoured(fact, foil)
    said = [compare.paragraph(contrast, 0, fact.name, foil.name, chosen, tie, best)]
    if question.what_if is not None:
        said.append(compare.overtakes(contrast, 0, question.what_if, fact.name, foil.name))
    return said


def _favoured(fact: Compared, foil: Compared) -> tuple[str, float] | None:
    """A third action that the explained returns favour over the agent's own, and its return."""
    run = fact.run
    if not run.env.discrete or run.explainer.legend.reward_bound is None:
        return None
    valid = run.env.mask(fact.state.observation)
    actions = np.flatnonzero(valid[0])
    explanation = fact.expectations.explain(actions)
    returns = np.full(valid.shape, np.nan)
    returns[0, actions] = what_if.returns(explanation, {})
    best = int(run.explainer.favoured(returns, np.array([fact.own]), valid)[0])
    if best in (fact.own, fact.action, foil.action):
        return None
    gain = explanation[actions == best] - explanation[actions == fact.own]
    if not gain.settled[0]:
        return None
    return run.env.name_of_action(best), float(returns[0, best])


def _rank(question: Question, fact: Compared, out: Path) -> None:
    """All valid actions here, under the rewards as they are and as they might be."""
    run = fact.run
    if run.explainer.legend.reward_bound is None:
        return
    actions = np.array(valid_actions(run, fact.state))
    names = [run.env.name_of_action(action) for action in actions]
    explanation = fact.expectations.explain(actions)
    columns: dict[str, FloatArray] = {"return": what_if.returns(explanation, {})}
    if question.rewards:
        columns["with these rewards"] = what_if.returns(explanation, question.rewards)
    if question.resolve:
        columns["re-solved"] = _resolved_returns(run, question.rewards, fact.state, actions)
    own = None if fact.own is None else run.env.name_of_action(fact.own)
    columns |= _observed_returns(fact, names, explanation, out)
    told = explanation.told.returns[:, -1]
    columns = {name: np.where(told, column, np.nan) for name, column in columns.items()}
    unit = answer_tables.counted_as(explanation)
    show(answer_tables.ranking(names, columns, own, explanation.support, question.rewards, told, unit))
    if question.rewards:
        print("the rest of the policy is taken as it is, but for the column re-solved\n")
    if question.what_if is not None:
        _what_if(run, question.what_if, names, explanation, out)


def _observed_returns(
    fact: Compared, names: Sequence[str], explanation: Explanation, out: Path
) -> dict[str, FloatArray]:
    """Columns [action]: the tails of the returns that will be observed, where rollouts or learning tell."""
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
    """[action]: returns to the horizon of the policy that is optimal under these rewards."""
    model, outcomes = run.model(), run.outcomes()
    if model is None:
        raise QuestionError(f"the dynamics of {run.env.id} are not known, so nothing can be solved anew")
    optimal = resolve(model, outcomes, rewards, run.explainer.policy.discount)
    exact = ExactSolution(run.env, optimal, outcomes, horizon=run.explainer.predictor.horizon, model=model)
    anew = replace(run, explainer=Explainer(exact, optimal, what_if.with_rewards(outcomes.legend, rewards)))
    here = np.repeat(state.observation, len(actions), axis=0)
    return what_if.returns(anew.explainer.explain(here, actions), {})


def _what_if(run: SavedRun, outcome: str, names: Sequence[str], explanation: Explanation, out: Path) -> None:
    """The returns against one reward, here and, as far as another action overtakes, in all states met."""
    now = what_if.reward_of(explanation.legend, outcome)
    reach = max(2 * abs(now), 10.0)
    intervals = what_if.best_rows(what_if.ranking(explanation, outcome, now - reach, now + reach))
    for low, high, row in intervals:
        print(f"  {outcome} worth {low:8.4g} to {high:8.4g}: {names[row]} is worth most")
    against_reward(outcome, names, explanation, now, reach).savefig(out / f"what_if_{outcome}.png")
    if run.recording is not None:
        _fragile_states(run, run.recording, outcome, now, out)
    spec = MapSpec.from_config(run.maps, run.env)
    if spec is not None:
        atlas = Atlas.explore(run.explainer, run.env, spec)
        found = what_if.fragility(run.explainer, run.env, atlas.explanation.observations, outcome)
        moves = np.where(
            found.best < 0, np.nan, np.where(found.rival < 0, np.inf, np.abs(found.reward - now))
        )
        maps.fragile_map(atlas, outcome, now, moves).savefig(out / f"fragile_map_{outcome}.png")


def _fragile_states(run: SavedRun, recording: Recording, outcome: str, now: float, out: Path) -> None:
    """Where in the recorded episodes a small change of the reward lets another action overtake."""
    met = np.unique(recording.episodes.transitions.observation, axis=0)
    some = f"in {len(met)} states of the recorded episodes"
    if run.explainer.simulates and len(met) > MOST_SIMULATED:  # each takes many milliseconds
        some = f"in {MOST_SIMULATED} of the {len(met)} states of the recorded episodes"
        met = met[np.linspace(0, len(met) - 1, MOST_SIMULATED).astype(np.int64)]
    found = what_if.fragility(run.explainer, run.env, met, outcome)
    if (found.best < 0).all():
        print(f"{some}: not told, because the return or the count of {outcome} was not learned\n")
        return
    fragile(outcome, now, found).savefig(out / f"fragile_{outcome}.png")
    rows = answer_tables.most_fragile(run.env, met, found, now)
    show(answer_tables.fragile_table(outcome, rows, f"{some} ({found.obtained})"))
    (out / f"fragile_{outcome}.json").write_text(json.dumps(rows, indent=2))
