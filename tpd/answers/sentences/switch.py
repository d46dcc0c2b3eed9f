"""A sentence about the switch: the condition on the first steps that decides the future."""

from collections.abc import Collection

from tpd.answers.sentences.formatting import likely, percent, sentence
from tpd.answers.switch import Branches, Switch
from tpd.envs.events.default import ACTION


def switch_in_words(switch: Switch, after: str, actions: Collection[str] = ()) -> str:
    """The condition, and the probability of the decisive event in both branches, after the action `after`.

    actions: names of the agent's actions; the sentence says "chooses" for these, "happens" for other events.
    """
    decided = [f"{switch.decisive.event} within {switch.horizon} steps is {_instead(switch.decisive)}"]
    if switch.response is not None:
        decided.append(f"{switch.response.event} {_instead(switch.response)}")
    when = "at the first step" if switch.steps == 1 else f"within the first {switch.steps} steps"
    if switch.condition in actions or switch.condition.startswith(ACTION):
        name = switch.condition.removeprefix(ACTION)
        met = f"it {'chooses' if switch.happens else 'does not choose'} {name}"
    else:
        met = f"{switch.condition} {'happens' if switch.happens else 'does not happen'}"
    chance = percent(switch.probability)
    return sentence(f"after {after}, if {met} {when} ({chance}), {' and '.join(decided)}")


def _instead(branches: Branches) -> str:
    met = likely(branches.if_met, branches.if_met_band)
    return f"{met} likely (otherwise {likely(branches.otherwise, branches.otherwise_band)})"
