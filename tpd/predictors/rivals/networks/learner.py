"""Baselines learned by TD with a target network: expected Sarsa under the fixed policy.

The quantities are those of `rivals/reward_decomposition`, `rivals/outcome_gvfs` and `rivals/temporal_reward`.
"""

import copy
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

from tpd.core.efo import powers
from tpd.core.outcomes import UNACCOUNTED, OutcomeSet
from tpd.core.seeding import generator
from tpd.core.types import DiscretePolicy, FloatArray, Policy, State, Transitions, hidden_size
from tpd.core.verdicts import Verdicts
from tpd.envs import Environment
from tpd.guards.settings import number, whole_number
from tpd.predictors.network.device import choose_device
from tpd.predictors.network.fitted import FittedLearner, follow, seeded
from tpd.predictors.network.next_actions import NextActions, probabilities_of
from tpd.predictors.network.pair_network import PairNetwork
from tpd.predictors.network.replay_buffer import Experience, ReplayBuffer, check_kept
from tpd.predictors.network.state import prefixed, unprefixed
from tpd.predictors.rivals.discounted_totals import check_discount, limits
from tpd.predictors.rivals.networks.predictor import Places, RivalPredictor, ScaledNetwork
from tpd.predictors.rivals.temporal_reward import carrier_of, temporal_limits

SLOWEST = 0.05
"""Final fraction of the learning rate."""


class _Quantity:
    """The quantity that a baseline learns, and its one-step target; here totals of all outcomes."""

    def __init__(self, outcomes: OutcomeSet, horizon: int, discount: float) -> None:
        self.outcomes, self.horizon, self.discount = outcomes, horizon, discount
        self.columns = self._columns()
        """The outcomes whose totals are learned."""

    def _columns(self) -> list[int]:
        return list(range(len(self.outcomes.outcomes)))

    @property
    def limits(self) -> Verdicts:
        """[1, ...]"""
        return limits(self.horizon, np.isin(np.arange(self.outcomes.width), self.columns))

    @property
    def places(self) -> Places:
        """Totals are placed at the last step."""
        outputs = len(self.columns)
        factor = np.full(outputs, self.discount ** -(self.horizon - 1.0))
        return Places(np.full(outputs, self.horizon - 1), np.array(self.columns, dtype=np.int64), factor)

    def scale(self, outcome: FloatArray) -> FloatArray:
        """[output]: the typical size of the quantity, from outcomes [batch, outcome]."""
        size = np.abs(outcome[:, self.columns]).mean(axis=0) / (1 - self.discount)
        return np.asarray(np.maximum(size, np.sqrt((outcome[:, self.columns] ** 2).mean(axis=0))))

    def target(self, kept: Experience, following: Tensor) -> Tensor:
        """[batch, output]: one-step targets, bootstrapped from the next pairs [batch, output]."""
        outcome, continuation = (
            torch.as_tensor(part[:, self.columns]).to(following) for part in (kept.outcome, kept.continuation)
        )
        return outcome + self.discount * continuation * following


class _RewardTerms(_Quantity):
    def _columns(self) -> list[int]:
        if self.outcomes.legend.reward_bound is None:
            raise ValueError(f"reward decomposition: {UNACCOUNTED}")
        return self.outcomes.legend.components


class _Bins(_Quantity):
    def _columns(self) -> list[int]:
        self._carrier, self._weight = carrier_of(self.outcomes)
        return [self._carrier]

    @property
    def limits(self) -> Verdicts:
        """[1, ...]"""
        return temporal_limits(self.outcomes, self.horizon)

    @property
    def places(self) -> Places:
        steps = np.arange(self.horizon)
        factor = self.discount ** -steps.astype(np.float64) / self._weight
        return Places(steps, np.full(self.horizon, self._carrier), factor)

    def _reward(self, outcome: FloatArray) -> FloatArray:
        return np.asarray(outcome[:, :-1] @ self.outcomes.legend.rewards.astype(np.float32))

    def scale(self, outcome: FloatArray) -> FloatArray:
        reward = self._reward(outcome)
        size = np.sqrt((reward**2).mean()) * powers(self.discount, self.horizon)
        size[-1] = max(size[-1], np.abs(reward).mean() / (1 - self.discount))
        return np.asarray(size)

    def target(self, kept: Experience, following: Tensor) -> Tensor:
        """The target of each bin is the next pair's bin before it; that of the last bin adds the last bin."""
        goes_on = torch.as_tensor(kept.continuation[:, -1:]).to(following)
        reward = torch.as_tensor(self._reward(kept.outcome)[:, None]).to(following)
        later = self.discount * goes_on * following
        if self.horizon == 1:
            return reward + later
        return torch.cat([reward, later[:, :-2], later[:, -2:].sum(dim=1, keepdim=True)], dim=1)


QUANTITIES = {"reward terms": _RewardTerms, "outcomes": _Quantity, "reward by step": _Bins}


class RivalNetwork(FittedLearner[RivalPredictor]):
    """Learns a baseline's quantities with a network, from a replay buffer.

    quantity: "reward terms" (reward decomposition), "outcomes" (GVFs) or "reward by step" (temporal reward
        decomposition).
    """

    tie = RivalPredictor.tie

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        quantity: str,
        hidden: Sequence[int] = (128, 128),
        learning_rate: float = 1e-3,
        batch_size: int = 256,
        target_update_rate: float = 0.02,
        fit_updates: int = 10_000,
        replay_size: int = 1_000_000,
        seed: int = 0,
        device: str = "auto",
    ) -> None:
        if quantity not in QUANTITIES:
            raise ValueError(f"quantity must be one of {', '.join(QUANTITIES)}, got {quantity!r}")
        self.horizon = whole_number("horizon", horizon, at_least=1)
        discount = check_discount(policy.discount, "this method")
        self.quantity = QUANTITIES[quantity](outcomes, self.horizon, discount)
        self.batch_size = whole_number("batch_size", batch_size, at_least=1)
        self.target_update_rate = number("target_update_rate", target_update_rate, 0, 1, above_low=True)
        self._rate = number("learning_rate", learning_rate, 0, 1, above_low=True)
        self.policy, self.outcomes, self._spaces = policy, outcomes, (env.observation_space, env.action_space)
        self._hidden_state = hidden_size(policy)
        places, outputs = self.quantity.places, len(self.quantity.places.step)
        with seeded(seed, "rival"):
            widths = [whole_number("hidden", width, at_least=1) for width in hidden]
            pairs = PairNetwork(*self._spaces, outputs, hidden=widths, hidden_state=self._hidden_state)
            self.network = ScaledNetwork(pairs, outputs).to(choose_device(device))
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        self._replay = ReplayBuffer(whole_number("replay_size", replay_size, at_least=1))
        tried = np.zeros(env.num_actions if env.discrete else 1, dtype=np.int64)
        super().__init__(
            RivalPredictor(self.target_network, tried, places, self.quantity.limits),
            {"network": self.network, "target_network": self.target_network},
            torch.optim.Adam(self.network.parameters(), lr=self._rate),
            generator(seed, "rival batches"),
            whole_number("fit_updates", fit_updates, at_least=0),
        )
        self._next_probabilities: FloatArray | None = None

    @property
    def limits(self) -> Verdicts:
        """[1, ...]"""
        return self._predictor.limits

    def update(self, transitions: Transitions) -> None:
        """Add a batch to the replay buffer."""
        observed = self.outcomes.observe(transitions)
        for network in (self.network, self.target_network):
            network.pairs.see(transitions.observation)
        self._replay.add(transitions, observed, np.zeros(len(transitions), dtype=np.bool_))
        self._count_tries(transitions, self.network.pairs.discrete)

    def fit(self, progress: Callable[[int], None] = lambda updates: None, at_most: int | None = None) -> None:
        """Make all updates; `at_most` limits the updates of this call, and the next call continues."""
        if not len(self._replay):
            return
        kept = self._replay.kept
        if isinstance(self.policy, DiscretePolicy):
            self._next_probabilities = probabilities_of(self.policy, kept.next_observation)
        if self._fitted == 0:
            size = self.quantity.scale(kept.outcome)
            scale = torch.as_tensor(np.where(size > 0, size, 1), dtype=torch.float32)
            self.network.scale.copy_(scale)
            self.target_network.scale.copy_(scale)
        end = self._end(at_most)
        while self._fitted < end:
            for group in self._optimizer.param_groups:
                group["lr"] = self._rate * max(SLOWEST, 1 - self._fitted / self.fit_updates)
            self._learn(kept)
            self._fitted += 1
            progress(1)

    def _learn(self, kept: Experience) -> None:
        """One update on a random batch from the replay buffer."""
        rows = self._rng.integers(len(kept), size=self.batch_size)
        batch = kept[rows]
        if self._next_probabilities is None:
            following = NextActions.of(self.policy, batch.next_observation, self._rng)
        else:
            following = NextActions.among(batch.next_observation, self._next_probabilities[rows])
        scale, pairs = self.network.scale, self.network.pairs
        with torch.no_grad():
            expected = following.mean(following.outputs(self.target_network.pairs)) * scale
            target = self.quantity.target(batch, expected) / scale
        outputs = pairs.outputs(pairs.features(batch.observation, batch.action), batch.action)
        loss = ((outputs - target) ** 2).mean()
        self._step(loss)
        follow(self.target_network, self.network, self.target_update_rate)
        self._losses.append(float(loss.detach()))

    def state(self) -> State:
        """The networks, the replay buffer, and the progress of the fit."""
        return {**super().state(), **prefixed("replay", self._replay.state())}

    def restore(self, state: State) -> None:
        """Continue from that state."""
        super().restore(state)
        self._replay.restore(unprefixed("replay", state))
        if len(self._replay):
            check_kept(self._replay.kept, self._spaces, self._hidden_state, self.outcomes)

    def metrics(self) -> dict[str, float]:
        """Training metrics since the last call."""
        loss = self._mean_loss()
        return {} if loss is None else {"explainer/loss": loss}
