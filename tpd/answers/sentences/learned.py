"""Sentences that compare learned predictions with rollouts, and name the largest errors."""

import numpy as np

from tpd.answers.sentences.formatting import listed, percent, sentence, worth
from tpd.core.explanation import Explanation
from tpd.core.outcomes import FIRST
from tpd.core.types import IntArray

MOST_SAID = 2
WRONG = 0.05
"""A learned probability with a smaller error is not called wrong."""


def learned_instead(rolled_out: Explanation, learned: Explanation, name: str) -> str:
    """The largest contradictions between the learned prediction of one pair and its rollouts."""
    if not learned.foreseen[0, -1]:
        return sentence(
            f"the learned prediction for {name} leads to untried state-action pairs, so it is not compared"
        )
    if learned.endless:
        return sentence(f"the learned return for {name} is over an infinite horizon, so it is not compared")
    judged = _told_firsts(learned)
    said = [_instead(rolled_out, learned, k) for k in _contradicted(rolled_out, learned, judged)[:MOST_SAID]]
    rewarded = rolled_out.legend.reward_bound is not None and bool(learned.told.returns[0, -1])
    if rewarded and (said or _other_return(rolled_out, learned)):
        returns = [worth(float(side.expected_return[0, -1])) for side in (learned, rolled_out)]
        said.append(f"return {returns[0]} (rollouts: {returns[1]})")
    if said:
        return sentence(f"the learned prediction for {name} contradicts the rollouts: {listed(said)}")
    compared = [*(["all first occurrences"] if len(judged) else []), *(["the return"] if rewarded else [])]
    if not compared:
        return sentence(f"nothing that could be compared with the rollouts after {name} is learned")
    agrees = f"agrees with the rollouts within {percent(WRONG)} in what is learned of {listed(compared)}"
    return sentence(f"the learned prediction for {name} {agrees}")


def _other_return(rolled_out: Explanation, learned: Explanation) -> bool:
    """Whether the learned return lies well outside the band of the rollouts."""
    guess, true = (float(side.expected_return[0, -1]) for side in (learned, rolled_out))
    low, high = (float(end[0, -1]) for end in rolled_out.return_band())
    return not low <= guess <= high and abs(guess - true) >= WRONG * max(abs(guess), abs(true))


def _told_firsts(learned: Explanation) -> IntArray:
    """The columns of first occurrences that are learned."""
    names, told = learned.legend.names, learned.told.by[0, -1]
    return np.array([k for k, name in enumerate(names) if name.startswith(FIRST) and told[k]], dtype=np.int64)


def _contradicted(rolled_out: Explanation, learned: Explanation, judged: IntArray) -> list[int]:
    """Columns whose learned probability lies well outside the band of the rollouts, largest error first."""
    guess, true = (side.expected[0].sum(axis=0) for side in (learned, rolled_out))
    band = rolled_out.sum_band()
    beyond = np.maximum(band.low[0, -1] - guess, guess - band.high[0, -1])
    wrong = judged[(beyond[judged] > 0) & (np.abs(guess - true)[judged] >= WRONG)]
    return [int(k) for k in wrong[np.argsort(-np.abs(guess - true)[wrong])]]


def _instead(rolled_out: Explanation, learned: Explanation, k: int) -> str:
    guess, true = (float(np.clip(side.expected[0, :, k].sum(), 0, 1)) for side in (learned, rolled_out))
    event = rolled_out.legend.names[k].removeprefix(FIRST)
    return f"{event} within {rolled_out.horizon} steps {percent(guess)} (rollouts: {percent(true)})"
