"""Fixed-horizon TD (FHTD) with a neural network, for state spaces that are too large for a table."""

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from tpd.core.efo import check_decomposition
from tpd.core.outcomes import FIRST, OutcomeSet
from tpd.core.sampling import stratified
from tpd.core.seeding import generator
from tpd.core.types import IntArray, Policy, RecurrentPolicy, State, Transitions, hidden_size
from tpd.envs import Environment
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import boolean, number, one_of, whole_number
from tpd.predictors.episode_split import EpisodeSplit
from tpd.predictors.mixture.weights import Windows
from tpd.predictors.network.columns import Columns, EndingEvents, next_actions, only_at_the_end
from tpd.predictors.network.device import choose_device
from tpd.predictors.network.fitted import FittedLearner, follow, seeded
from tpd.predictors.network.margins import has_margins
from tpd.predictors.network.outcome_network import OutcomeNetwork
from tpd.predictors.network.predictor import NetworkPredictor
from tpd.predictors.network.replay_buffer import check_kept
from tpd.predictors.network.returns import ReturnLearner, ReturnNetwork, return_settings
from tpd.predictors.network.selection import Selection
from tpd.predictors.network.state import prefixed, unprefixed
from tpd.predictors.network.targets import Losses, Targets, losses
from tpd.predictors.network.window_targets import WindowTargets

CHECKS, SELECTED_FROM = 20, 0.75
"""Number of evaluations on held-out episodes, and the fraction of updates after which they count. Earlier
ones do not: held-out windows cannot judge the steps beyond them, which are learned last."""
WARM_UP, SLOWEST = 0.05, 0.05
"""Fraction of updates for learning rate warm-up, and final fraction of the learning rate."""
LEVELS = (0.01, 0.2)
"""Edges between unlikely, possible and likely events, for choosing held-out windows."""
NUMBERS = ("_seen", "_owed", "_version")


class NetworkFHTD(FittedLearner[NetworkPredictor]):
    """FHTD with a neural network, a replay buffer and a target network (Polyak averaging).

    Targets are n-step targets: outcomes observed while the policy chose the actions, at most `window` steps,
    then bootstrapped from the target network. `window=1` is the one-step target. With `bootstrap=False`
    nothing beyond the window is learned. One in ten episodes is held out; after the last update, the weights
    with the lowest loss on them are selected. Predictions are those of the target network.

    form "efo" learns the outcomes `O_h` directly: a softmax per step ahead over a partition of events and the
    end, a distribution over steps for events that happen at most once, sigmoids for other events, regression
    for the rest. "fhgvf" learns value functions `Q_h` by regression and decomposes them.

    It has bands after calibration, until the next update. With `return_atoms` a second network learns the
    distribution of the return.
    """

    tie = NetworkPredictor.tie

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        outcomes: OutcomeSet,
        *,
        horizon: int = 30,
        form: str = "efo",
        discount: float = 1.0,
        hidden: Sequence[int] = (128, 128),
        learning_rate: float = 8e-3,
        batch_size: int = 256,
        target_update_rate: float = 5e-3,
        updates_per_step: float = 0,
        fit_updates: int = 3000,
        replay_size: int = 1_000_000,
        seed: int = 0,
        window: int | None = None,
        bootstrap: bool = True,
        weight_decay: float = 0.06,
        difference_decay: float = 20,
        return_atoms: int = 0,
        device: str = "auto",
    ) -> None:
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self.form = one_of("form", form, ("efo", "fhgvf"))
        self.discount = number("discount", discount, 0, 1, above_low=True)
        self.batch_size = whole_number("batch_size", batch_size, at_least=1)
        self.target_update_rate = number("target_update_rate", target_update_rate, 0, 1, above_low=True)
        self.updates_per_step = number("updates_per_step", updates_per_step, 0, 100)
        self.bootstrap = boolean("bootstrap", bootstrap)
        self.weight_decay = number("weight_decay", weight_decay, 0, 100)
        self.difference_decay = number("difference_decay", difference_decay, 0, 100)
        self.device = choose_device(device)
        if form == "fhgvf":
            check_decomposition(discount, horizon, np.dtype("float32"))
        self.policy, self.outcomes, self._seed = policy, outcomes, seed
        self._rate = number("learning_rate", learning_rate, 0, 1, above_low=True)
        self._spaces = env.observation_space, env.action_space
        self._alike: dict[str, Any] = {
            "horizon": self.horizon,
            "hidden": [whole_number("hidden", width, at_least=1) for width in hidden],
            "hidden_state": hidden_size(policy),
        }
        self._returns: ReturnLearner | None = None
        if whole_number("return_atoms", return_atoms, at_least=0):
            settings = return_settings(return_atoms, policy, outcomes)
            with seeded(seed, "returns"):
                of_returns = ReturnNetwork(*self._spaces, settings, **self._alike).to(self.device)
            rewards = outcomes.legend.rewards
            self._returns = ReturnLearner(of_returns, rewards, self._rate, self.target_update_rate)
        self._split = EpisodeSplit()
        self._value_discount = self.discount if form == "fhgvf" else None
        rng = generator(seed, "replay")
        self._replay = WindowTargets(
            policy,
            rng,
            horizon=self.horizon,
            window=self.horizon if window is None else whole_number("window", window, at_least=1),
            discount=self._value_discount,
            capacity=whole_number("replay_size", replay_size, at_least=1),
        )
        self._tried = np.zeros(env.num_actions if env.discrete else 1, dtype=np.int64)
        self._seen, self._owed = 0, 0.0
        self._version = policy.version if isinstance(policy, RecurrentPolicy) else 0
        self._endings = EndingEvents(outcomes)
        self._build(self._columns(()))
        updates = whole_number("fit_updates", fit_updates, at_least=0)
        super().__init__(self._predictor, self._networks, self._optimizer, rng, updates)

    def _columns(self, ending: Sequence[int]) -> Columns:
        """The columns, where the events `ending` end the episode."""
        if self.form == "fhgvf":
            return Columns.all_real(self.outcomes.width)
        return Columns.of(self.outcomes).ended_by(ending)

    def _build(self, columns: Columns, margin: bool = False) -> None:
        """Make the networks; `margin` says whether the agent's action margin is an input."""
        with seeded(self._seed, "network"):
            network = OutcomeNetwork(*self._spaces, columns, margin=margin, **self._alike)
            self.network = network.to(self.device)
        self.network.ask(self.policy)
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self.network.train()
        differing = [p for part in self.network.parts for p in (part.heads.difference, part.heads.offset)]
        others = [p for p in self.network.parameters() if not any(p is d for d in differing)]
        groups: list[dict[str, Any]] = [
            {"params": others, "weight_decay": self.weight_decay},
            {"params": differing, "weight_decay": self.difference_decay},
        ]
        self._optimizer = torch.optim.AdamW(groups, lr=self._rate, fused=True)
        of_returns = None if self._returns is None else self._returns.target_network
        self._networks = {"network": self.network, "target_network": self.target_network}
        self._predictor = NetworkPredictor(self.target_network, self._tried, self._value_discount, of_returns)
        self._selection = Selection(len(self.network.parts))

    def update(self, transitions: Transitions) -> None:
        """Add a batch to the replay buffer, and make `updates_per_step` updates for each transition."""
        self._forget_other_hidden_states()
        observed = self.outcomes.observe(transitions)
        if self.updates == 0 and self.form == "efo":
            self._endings.ask(transitions)
        self.network.see(transitions.observation)
        self.target_network.see(transitions.observation)
        if self._returns is not None:
            self._returns.update_scales(transitions.observation, observed.outcome, first=self._seen == 0)
        self._replay.add(transitions, observed, self._split.held_out(transitions))
        self._seen += len(transitions)
        self._count_tries(transitions, self.network.discrete)
        self._owed += self.updates_per_step * len(transitions)
        while self._owed >= 1:
            self._owed -= 1
            self.learn()

    def _begin(self) -> None:
        """Build the networks from the data so far: events that end the episode, scales and means."""
        kept = self._replay.kept
        columns = self._columns(self._endings.found)
        columns = replace(columns, final=only_at_the_end(columns, kept.outcome))
        if self.network.discrete:
            columns = replace(columns, exclusive=next_actions(columns, kept.action, kept.outcome))
        self._build(columns, has_margins(self.policy, kept.observation))
        mean, square = kept.outcome.mean(axis=0), np.mean(kept.outcome**2, axis=0)
        if final := list(columns.final):
            at_the_end = kept.outcome[kept.outcome[:, -1] > 0][:, final]
            mean[final], square[final] = at_the_end.mean(axis=0), np.mean(at_the_end**2, axis=0)
        if self.form == "fhgvf":
            mean[:] = 0
        size = np.sqrt(square[list(columns.real)])
        size[size == 0] = 1
        self.network.start_from(mean, size)
        self.network.see(kept.observation)
        self.target_network.load_state_dict(self.network.state_dict())

    def fit(self, progress: Callable[[int], None] = lambda updates: None, at_most: int | None = None) -> None:
        """Make all updates, and select the weights with the lowest loss on held-out episodes.

        `at_most` limits the updates of this call; the next call continues.
        """
        self._forget_other_hidden_states()
        if not len(self._replay) or self._fitted == self.fit_updates:
            return
        self._replay.consult_policy()
        check_every = max(1, self.fit_updates // CHECKS)
        end = self._end(at_most)
        while self._fitted < end:
            self._schedule()
            self.learn()
            self._fitted += 1
            progress(1)
            late = self._fitted > SELECTED_FROM * self.fit_updates
            if (late and self._fitted % check_every == 0) or self._fitted == self.fit_updates:
                self._selection.offer(self.target_network.parts, self.select_losses())
        if self._fitted == self.fit_updates:
            self._selection.put_best(self.target_network.parts)

    def _schedule(self) -> None:
        """Set the learning rate: linear warm-up, then linear decay."""
        done = self._fitted / self.fit_updates
        rising, falling = (done + 1 / self.fit_updates) / WARM_UP, max(SLOWEST, 1 - done)
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * min(1.0, rising) * falling

    def state(self) -> State:
        """Networks, optimizer, replay buffer, random state and progress of the fit."""
        numbers = {name: np.array(getattr(self, name)) for name in NUMBERS}
        return {
            **super().state(),
            **numbers,
            "ending": np.array([group[0] for group in self.network.columns.ending], dtype=np.int64),
            "margin": np.array(self.network.margin),
            "exclusive": np.array(self.network.columns.exclusive, dtype=np.int64),
            "final": np.array(self.network.columns.final, dtype=np.int64),
            "otherwise": self._endings.otherwise,
            "together": self._endings.together,
            **prefixed("selection", self._selection.state()),
            **prefixed("split", self._split.state()),
            **prefixed("replay", self._replay.state()),
            **prefixed("returns", {} if self._returns is None else self._returns.state()),
        }

    def restore(self, state: State) -> None:
        """Continue from that state."""
        stored, endings = CheckedArrays(state), self._endings
        self._seen, self._version = map(stored.number, ("_seen", "_version"))
        self._owed = float(stored.like("_owed", np.zeros(()), low=0, high=1))
        ending, exclusive, final = (
            tuple(stored.like(name, np.zeros(0, dtype=np.int64), rows=None).tolist())
            for name in ("ending", "exclusive", "final")
        )
        columns = replace(self._columns(ending), exclusive=exclusive, final=final)
        self._build(columns, bool(stored.like("margin", np.zeros((), dtype=np.bool_))))
        endings.otherwise = stored.like("otherwise", endings.otherwise, low=0).copy()
        endings.together = stored.like("together", endings.together, low=0).copy()
        super().restore(state)
        self._selection.restore(unprefixed("selection", state), self.target_network.parts)
        self._split.restore(unprefixed("split", state))
        self._replay.restore(unprefixed("replay", state))
        if len(self._replay):
            check_kept(self._replay.kept, self._spaces, self._alike["hidden_state"], self.outcomes)
        if self._returns is not None:
            self._returns.restore(unprefixed("returns", state))

    def metrics(self) -> dict[str, float]:
        """Training metrics since the last call."""
        loss = self._mean_loss()
        figures = {"explainer/updates": float(self.updates)}
        figures |= {} if self._returns is None else self._returns.metrics()
        return figures if loss is None else figures | {"explainer/loss": loss}

    def select_windows(self, at_most: int) -> Windows:
        """At most this many windows of the held-out episodes, more of them where a rare event is forecast.

        Few windows hold what ends an episode. Without strata, a mixture would be chosen by one or two ends.
        """
        rows = self._replay.selected
        if not len(rows):
            return self._replay.windows(rows, np.ones(0))
        kept, names = self._replay.kept, self.outcomes.legend.names
        once = [*(name.startswith(FIRST) for name in names), True]
        by = self.predict(kept.observation[rows], kept.action[rows])[..., once].sum(axis=1)
        chosen, weight = stratified(np.searchsorted(LEVELS, by, side="right"), at_most)
        return self._replay.windows(rows[chosen], weight)

    def select_losses(self) -> list[float]:
        """The loss of each part on the held-out episodes."""
        rows = self._replay.selected
        if not len(rows):
            return [0.0 for _ in self.network.parts]
        with torch.no_grad():
            target = self._replay.targets(rows, self.target_network, bootstrap=False)
            found = self._losses_of(self.target_network, rows, target)
        parts = (self.network.steps, self.network.times)
        return [float(loss.mean()) for loss, part in zip(found, parts, strict=True) if part is not None]

    def _forget_other_hidden_states(self) -> None:
        """Clear the replay buffer if its hidden states come from an earlier version of the policy."""
        if isinstance(self.policy, RecurrentPolicy) and self.policy.version != self._version:
            self._version = self.policy.version
            self._replay.clear()

    def learn(self) -> None:
        """One update on a random batch from the replay buffer."""
        rows = self._replay.batch(self.batch_size)
        if not len(rows):
            return
        if self.updates == 0:
            self._begin()
        target = self._replay.targets(rows, self.target_network, self.bootstrap)
        with seeded(self._seed, f"update {self.updates}"):
            steps, times = self._losses_of(self.network, rows, target)
        loss = steps.mean() + times.mean()
        self._step(loss)
        follow(self.target_network, self.network, self.target_update_rate)
        if self._returns is not None:
            self._returns.learn(self._replay.kept[rows], self._replay.following(rows))
        self._losses.append(float(loss.detach()))

    def _losses_of(self, network: OutcomeNetwork, rows: IntArray, target: Targets) -> Losses:
        kept = self._replay.kept
        actions = kept.action[rows]
        margins = self._replay.margins(rows, network)
        features = network.features(kept.observation[rows], actions, margins)
        return losses(network, network.outputs(features, actions), target)
