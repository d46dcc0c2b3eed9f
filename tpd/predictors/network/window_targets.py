"""n-step targets from the replay buffer: observed outcomes while the policy acted, then bootstrapped."""

from dataclasses import replace

import numpy as np
import torch

from tpd.core.outcomes import Observed
from tpd.core.types import BoolArray, DiscretePolicy, FloatArray, IntArray, Policy, Rng, State, Transitions
from tpd.kernels.windows import accumulate_windows, continue_windows, read_windows
from tpd.predictors.mixture.weights import Windows
from tpd.predictors.network.next_actions import NextActions, chosen_by, probabilities_of
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.replay_buffer import Experience, ReplayBuffer
from tpd.predictors.network.targets import Targets

FOILS = 0.25
"""Minimum fraction of a batch that starts with an action that the policy did not choose."""
BACKUPS = 4
"""Maximum number of tree backups after a window; each costs as much as the first target."""
MOST_SELECTED = 10_000


class WindowTargets:
    """A replay buffer that computes n-step targets for its transitions.

    window: maximum number of observed steps in a target; 1 gives the one-step target.
    discount: discount of the value functions that are learned; None if outcomes are learned.
    """

    def __init__(
        self, policy: Policy, rng: Rng, *, horizon: int, window: int, discount: float | None, capacity: int
    ) -> None:
        self._policy, self._rng, self._discount = policy, rng, discount
        self._horizon, self._window = horizon, min(window, horizon)
        self._replay = ReplayBuffer(capacity)
        self._rows: tuple[IntArray, IntArray] | None = None
        """Training rows in which the policy chose the action, and those in which it did not."""
        self._next: FloatArray | None = None
        """[row, num_actions]: cached action probabilities in the next state, once the policy is final; NaN
        until needed"""
        self._margins: tuple[FloatArray, FloatArray] | None = None
        """Both [row, 1]: margins of the agent at observations and at next observations, likewise"""

    def __len__(self) -> int:
        return len(self._replay)

    @property
    def kept(self) -> Experience:
        """All transitions in the replay buffer."""
        return self._replay.kept

    def add(self, transitions: Transitions, observed: Observed, selecting: BoolArray) -> None:
        """Add a batch; selecting [batch]: which transitions belong to held-out episodes."""
        self._replay.add(transitions, observed, selecting)
        self._rows = self._next = self._margins = None

    def clear(self) -> None:
        """Remove all transitions."""
        self._replay.clear()
        self._rows = self._next = self._margins = None

    def consult_policy(self) -> None:
        """Mark the transitions whose action the current policy would choose. The policy must be final."""
        kept = self.kept
        others = np.flatnonzero(~kept.own)
        if len(others):
            pairs = kept.observation[others], kept.action[others]
            kept.own[others] = chosen_by(self._policy, *pairs, self._rng)
        self._rows = None
        if isinstance(self._policy, DiscretePolicy):
            num_actions = self._policy.probabilities(kept.observation[:1]).shape[1]
            self._next = np.full((len(kept), num_actions), np.nan, dtype=np.float32)

    def margins(self, rows: IntArray, network: OutcomeNetwork) -> FloatArray | None:
        """[batch, 1]: the agent's margins in these rows; None if the network does not use or cache them."""
        cached = self._cached_margins(network)
        return None if cached is None else cached[0][rows]

    def _cached_margins(self, network: OutcomeNetwork) -> tuple[FloatArray, FloatArray] | None:
        """[row, 1] both: the margins at all observations, and at the next ones."""
        if self._next is None or not network.margin:
            return None
        if self._margins is None:
            kept, last = self.kept, self.kept.following < 0
            here, ends = map(network.margins_at, (kept.observation, kept.next_observation[last]))
            assert here is not None
            assert ends is not None
            after = here[np.maximum(kept.following, 0)]
            after[last] = ends
            self._margins = here, after
        return self._margins

    def following(self, rows: IntArray) -> NextActions:
        """The policy's next actions after the transitions of these rows."""
        observations = self.kept.next_observation[rows]
        if self._next is None or not isinstance(self._policy, DiscretePolicy):
            return NextActions.of(self._policy, observations, self._rng)
        asked = np.unique(rows[np.isnan(self._next[rows, 0])])
        if len(asked):
            self._next[asked] = probabilities_of(self._policy, self.kept.next_observation[asked])
        return NextActions.among(observations, self._next[rows])

    def batch(self, size: int) -> IntArray:
        """[batch]: random training rows; at least `FOILS` of them have actions that are not the policy's."""
        if self._rows is None:
            kept = self.kept
            trained = ~kept.selecting
            self._rows = np.flatnonzero(trained & kept.own), np.flatnonzero(trained & ~kept.own)
        own, foils = self._rows
        if not len(own) or not len(foils):
            either = own if len(own) else foils
            return either[self._rng.integers(len(either), size=size)] if len(either) else either
        of_foils = round(max(FOILS, len(foils) / (len(own) + len(foils))) * size)
        picks = [(foils, of_foils), (own, size - of_foils)]
        return np.concatenate([rows[self._rng.integers(len(rows), size=count)] for rows, count in picks])

    @property
    def selected(self) -> IntArray:
        """Rows of the held-out episodes, at most `MOST_SELECTED`, evenly spaced."""
        rows = np.flatnonzero(self.kept.selecting) if len(self) else np.zeros(0, dtype=np.int64)
        return rows[np.linspace(0, len(rows) - 1, min(MOST_SELECTED, len(rows))).astype(np.int64)]

    @torch.no_grad()
    def targets(
        self, rows: IntArray, network: OutcomeNetwork, bootstrap: bool, backups: int = BACKUPS
    ) -> Targets:
        """The n-step targets of these rows: outcomes observed in their windows, then bootstrapped if asked.

        If the action after a window may not be the policy's own but its probability is known, the window is
        followed by a tree backup: the target of that action is weighted by its probability, and the network
        predicts only the other actions. At most `backups` of them follow each other.
        """
        kept, order, horizon = self.kept, np.array(network.columns.order), self._horizon
        seen, going_on, known, last = read_windows(
            rows, kept.following, kept.own, kept.outcome, kept.continuation, order, horizon, self._window
        )
        weight = None if bootstrap else censoring_weights(known, seen[..., order.argmax()])  # of termination
        unfinished = np.flatnonzero(known < horizon) if bootstrap else np.zeros(0, dtype=np.int64)
        after = np.zeros((0, *seen.shape[1:]), dtype=np.float32)
        if len(unfinished):
            cached = self._cached_margins(network)
            margins = None if cached is None else cached[1][last[unfinished]]
            following = replace(self.following(last[unfinished]), margins=margins)
            after = following.mean(network.expected(following.outputs(network))).numpy(force=True)
            if backups and self._next is not None and self._window == horizon:
                self._back_up(after, last[unfinished], network, backups)
        if self._discount is None:
            continue_windows(seen, going_on, known, unfinished, after)
        else:
            accumulate_windows(seen, going_on, known, unfinished, after, self._discount)
        target = torch.from_numpy(seen).to(network.device)
        return Targets(target, None if weight is None else torch.from_numpy(weight).to(target))

    def _back_up(self, after: FloatArray, rows: IntArray, network: OutcomeNetwork, backups: int) -> None:
        """Tree backup: put the targets of the actions taken after these rows into `after` [row, ...]."""
        assert self._next is not None
        taken = self.kept.following[rows]
        likely = np.where(taken >= 0, self._next[rows, self.kept.action[taken]], 0)
        some = np.flatnonzero(likely)
        if not len(some):
            return
        taken, likely = taken[some], likely[some, None, None]
        pairs = self.kept.observation[taken], self.kept.action[taken]
        guess = network.expected(network.outputs(network.features(*pairs), pairs[1])).numpy(force=True)
        target = self.targets(taken, network, True, backups - 1).outcome.numpy(force=True)
        after[some] += likely * (target - guess)

    def windows(self, rows: IntArray, weight: FloatArray) -> Windows:
        """Windows that start at these rows, with these weights [row]."""
        kept = self.kept
        every, horizon = np.arange(kept.outcome.shape[1]), self._horizon
        seen, _, known, _ = read_windows(
            rows, kept.following, kept.own, kept.outcome, kept.continuation, every, horizon, horizon
        )
        known_weight = weight[:, None] * censoring_weights(known, seen[..., -1])
        return Windows(kept.observation[rows], kept.action[rows], seen, known_weight)

    def state(self) -> State:
        """The replay buffer."""
        return self._replay.state()

    def restore(self, state: State) -> None:
        """Replace the replay buffer by a saved state."""
        self.clear()
        self._replay.restore(state)


def censoring_weights(known: IntArray, ended: FloatArray) -> FloatArray:
    """[batch, horizon]: the weight of each step of each window; 0 where the step was not observed.

    known [batch]: the number of observed steps of each window; all steps if it terminates.
    ended [batch, horizon]: 1 at the step of termination.

    A window that terminates early is always fully observed. One that runs on is fully observed only if
    nothing cuts it. With equal weights, terminations would seem too likely. So each observed step is weighted
    by the inverse of the probability that a window is not cut before it (Kaplan-Meier estimate).
    """
    horizon, steps = ended.shape[1], np.arange(ended.shape[1])
    last = np.where(ended.any(axis=1), ended.argmax(axis=1), horizon)
    at_risk = (last[:, None] >= steps) & (known[:, None] >= steps)
    cut = (known[:, None] == steps) & (known < horizon)[:, None]
    share = np.divide(cut.sum(axis=0), at_risk.sum(axis=0), out=np.zeros(horizon), where=at_risk.any(axis=0))
    uncut = np.cumprod(1 - share)
    reached = np.minimum(steps, np.minimum(last, horizon - 1)[:, None])
    weight = np.divide(1, uncut, out=np.zeros(horizon), where=uncut > 0)[reached]
    return np.where(steps < known[:, None], weight, 0)
