"""Fixed-horizon TD with a network, for worlds that no table can hold."""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tpd.core.efo import check_decomposition
from tpd.core.outcomes import OutcomeSet
from tpd.core.seeding import generator
from tpd.core.types import Array, FloatArray, Policy, RecurrentPolicy, State, Transitions
from tpd.envs import Environment
from tpd.guards.settings import number, one_of, whole_number
from tpd.predictors.network.encoders import FeaturesExtractor, VectorEncoder, tensors
from tpd.predictors.network.errors import KnownErrors
from tpd.predictors.network.next_actions import NextActions
from tpd.predictors.network.outcome_network import Columns, OutcomeNetwork
from tpd.predictors.network.predictor import CalibratedPredictor, NetworkPredictor
from tpd.predictors.network.replay_buffer import Experience, ReplayBuffer
from tpd.predictors.network.returns import FEWEST_ATOMS, ReturnLearner, ReturnNetwork, ReturnSettings
from tpd.predictors.network.state import (
    generator_state,
    optimizer_state,
    prefixed,
    put_generator_state,
    put_optimizer_state,
    put_weights,
    unprefixed,
    weights,
)
from tpd.predictors.network.targets import least_losses, losses, observed, targets

HOLD_OUT = 20  # one in so many transitions is not trained on
HELD_OUT_SIZE = 10_000
PATIENCE = 8
BETTER = 0.99
NUMBERS = ("_seen", "_owed", "_version", "_fitted", "_best_loss", "_no_better", "updates")


class NetworkFHTD:
    """Learns from replayed transitions, with the targets of a slowly following target network.

    form "efo" learns the outcomes `O_h` directly: a softmax per step ahead over a partition of events
    and the end, a sigmoid for each other event, regression for the rest, all on `O_{h-1}` of the target
    network after the next action of the policy. "fhgvf" learns value functions `Q_h` by regression and
    decomposes them. Predictions are the target network's, which averages over the last updates.

    It has bands once it is calibrated, until it learns again. With `return_atoms` another network beside it
    learns the distribution of the return.
    """

    tie = NetworkPredictor.tie

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        form: str,
        discount: float,
        hidden: Sequence[int],
        learning_rate: float,
        batch_size: int,
        target_update_rate: float,
        updates_per_step: float,
        fit_updates: int,
        replay_size: int,
        seed: int,
        return_atoms: int = 0,
        features_extractor: FeaturesExtractor | None = None,
    ) -> None:
        self.horizon = whole_number("horizon", horizon, at_least=1)
        self.form = one_of("form", form, ("efo", "fhgvf"))
        self.discount = number("discount", discount, 0, 1, above_low=True)
        self.batch_size = whole_number("batch_size", batch_size, at_least=1)
        self.target_update_rate = number("target_update_rate", target_update_rate, 0, 1, above_low=True)
        self.updates_per_step = number("updates_per_step", updates_per_step, 0, 100)
        self.fit_updates = whole_number("fit_updates", fit_updates, at_least=0)
        if form == "fhgvf":
            check_decomposition(discount, horizon, np.dtype("float32"))
        self.policy = policy
        self.outcomes = outcomes
        columns = Columns.of(outcomes) if form == "efo" else Columns.all_real(outcomes.width)
        both = env.observation_space, env.action_space
        alike: dict[str, Any] = {
            "horizon": self.horizon,
            "hidden": [whole_number("hidden", width, at_least=1) for width in hidden],
            "hidden_state": policy.start(1).shape[1] if isinstance(policy, RecurrentPolicy) else 0,
            "features_extractor": features_extractor,
        }
        with _initialised(seed, "network"):
            self.network = OutcomeNetwork(*both, columns, **alike)
        self.target_network = copy.deepcopy(self.network).requires_grad_(False)
        rate = number("learning_rate", learning_rate, 0, 1, above_low=True)
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=rate, fused=True)
        self._returns: ReturnLearner | None = None
        if whole_number("return_atoms", return_atoms, at_least=0):
            settings = _return_settings(return_atoms, policy, outcomes)
            with _initialised(seed, "returns"):
                of_returns = ReturnNetwork(*both, settings, **alike)
            self._returns = ReturnLearner(of_returns, outcomes.legend.weights, rate, self.target_update_rate)
        self._rng = generator(seed, "replay")
        self._replay = ReplayBuffer(whole_number("replay_size", replay_size, at_least=1))
        self._held_out = ReplayBuffer(HELD_OUT_SIZE)
        self._seen, self._owed = 0, 0.0
        tried = np.zeros(env.num_actions if env.discrete else 1, dtype=np.int64)
        self._value_discount = self.discount if form == "fhgvf" else None
        self._predictor = NetworkPredictor(
            self.target_network,
            tried,
            self._value_discount,
            None if self._returns is None else self._returns.target_network,
        )
        self._calibrated: CalibratedPredictor | None = None
        self._losses: list[float] = []
        self._version = policy.version if isinstance(policy, RecurrentPolicy) else 0
        self._fitted, self._best_loss, self._no_better = 0, np.inf, 0
        self.updates = 0

    def update(self, transitions: Transitions) -> None:
        """Keep a batch for replay, and make the updates that are due for it."""
        self._forget_other_hidden_states()
        experience = Experience(
            transitions.observation,
            transitions.action,
            transitions.next_observation,
            *self.outcomes.observe(transitions),
        )
        self._update_scales(experience)
        held_out = (self._seen + np.arange(len(experience))) % HOLD_OUT == HOLD_OUT - 1
        self._replay.add(experience[np.flatnonzero(~held_out)])
        self._held_out.add(experience[np.flatnonzero(held_out)])
        self._seen += len(experience)
        actions = experience.action if self.network.discrete else np.zeros(len(experience), dtype=np.int64)
        tried = self._predictor.tried
        tried += np.bincount(actions, minlength=len(tried))
        self._owed += self.updates_per_step * len(experience)
        while self._owed >= 1 and len(self._replay):
            self._owed -= 1
            self.learn()

    def fit(self, progress: Callable[[int], None] = lambda updates: None, at_most: int | None = None) -> None:
        """Replay until what was held out is predicted no better, or the updates allowed are spent.

        A target network that knows nothing yet is easy to agree with, so nothing is judged before news had
        the time to travel through all steps ahead. With `at_most` so many updates are made, and
        the next call goes on.
        """
        self._forget_other_hidden_states()
        if not len(self._replay):
            return
        check_every = max(1, self.fit_updates // 40)
        warm_up = self.horizon / self.target_update_rate
        end = self.fit_updates if at_most is None else min(self.fit_updates, self._fitted + at_most)
        while self._fitted < end:
            self.learn()
            self._fitted += 1
            progress(1)
            if self._fitted % check_every or self.updates < warm_up or not len(self._held_out):
                continue
            loss = self.held_out_loss()
            if loss < BETTER * self._best_loss:
                self._best_loss, self._no_better = loss, 0
            else:
                self._no_better += 1
            if self._no_better == PATIENCE:
                progress(self.fit_updates - self._fitted)
                self._fitted = self.fit_updates

    def state(self) -> State:
        """The networks, what is kept for replay, and how far learning and fitting are."""
        numbers = {name: np.array(getattr(self, name)) for name in NUMBERS}
        return {
            **numbers,
            "tried": self._predictor.tried,
            "stream": generator_state(self._rng),
            **prefixed("network", weights(self.network)),
            **prefixed("target_network", weights(self.target_network)),
            **prefixed("optimizer", optimizer_state(self._optimizer)),
            **prefixed("replay", self._replay.state()),
            **prefixed("held_out", self._held_out.state()),
            **prefixed("returns", {} if self._returns is None else self._returns.state()),
        }

    def restore(self, state: State) -> None:
        """Go on from there."""
        for name in NUMBERS:
            setattr(self, name, state[name].item())
        self._predictor.tried[:] = state["tried"]
        put_generator_state(self._rng, state["stream"])
        put_weights(self.network, unprefixed("network", state))
        put_weights(self.target_network, unprefixed("target_network", state))
        put_optimizer_state(self._optimizer, unprefixed("optimizer", state))
        self._replay.restore(unprefixed("replay", state))
        self._held_out.restore(unprefixed("held_out", state))
        if self._returns is not None:
            self._returns.restore(unprefixed("returns", state))

    def calibrate(self, errors: KnownErrors) -> None:
        """Draw from these errors, until it learns again."""
        now = self._predictor
        self._calibrated = CalibratedPredictor(now.network, now.tried, now.discount, errors, now.of_returns)

    def solved(self) -> NetworkPredictor:
        """What it predicts now, with what else could be expected once it is calibrated."""
        return self._calibrated or self._predictor

    def metrics(self) -> dict[str, float]:
        """How learning goes, since last asked."""
        losses, self._losses = self._losses, []
        figures = {"explainer/updates": float(self.updates)}
        figures |= {} if self._returns is None else self._returns.metrics()
        return figures | ({"explainer/loss": float(np.mean(losses))} if losses else {})

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        return self._predictor.predict(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often an action was tried at all; a network knows no single pairs."""
        return self._predictor.support(observations, actions)

    def description(self) -> dict[str, Any]:
        """How the network is built."""
        return self.solved().description()

    def arrays(self) -> dict[str, Array]:
        """Its weights."""
        return self.solved().arrays()

    def held_out_loss(self) -> float:
        """How far what was held out is from its targets, beyond what no prediction could avoid."""
        batch = self._held_out[slice(None)]
        with torch.no_grad():
            target = self._targets(batch, self._following(batch))
            features = self.target_network.features(batch.observation, batch.action)
            outputs = self.target_network.outputs(features, batch.action)
            least = least_losses(self.network, target).mean()
            return float(losses(self.network, outputs, target).mean() - least)

    def _forget_other_hidden_states(self) -> None:
        """Drop what was kept, if it carries hidden states of other weights."""
        if isinstance(self.policy, RecurrentPolicy) and self.policy.version != self._version:
            self._version = self.policy.version
            self._replay.clear()
            self._held_out.clear()

    def _update_scales(self, experience: Experience) -> None:
        """Learn the scales of observations and, from the first batch, of outcomes and their means."""
        networks = (self.network, self.target_network)
        if self._returns is not None:
            self._returns.update_scales(experience, first=self._seen == 0)
        if self._seen == 0:
            size = np.sqrt(np.mean(experience.outcome[:, list(self.network.columns.real)] ** 2, axis=0))
            size[size == 0] = 1
            for network in networks:
                network.scale.copy_(torch.as_tensor(size))
            if self.form == "efo":
                for network in networks:
                    network.start_from(observed(network, experience)[0].mean(dim=0))
        for network in networks:
            if isinstance(network.encoder, VectorEncoder):
                network.encoder.see(tensors(experience.observation).float())

    def learn(self) -> None:
        """One update from a random batch of what is kept."""
        self._calibrated = None
        batch = self._replay.sample(self.batch_size, self._rng)
        following = self._following(batch)
        target = self._targets(batch, following)
        features = self.network.features(batch.observation, batch.action)
        loss = losses(self.network, self.network.outputs(features, batch.action), target).mean()
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        with torch.no_grad():
            torch._foreach_lerp_(
                list(self.target_network.parameters()),
                list(self.network.parameters()),
                self.target_update_rate,
            )
        if self._returns is not None:
            self._returns.learn(batch, following)
        self.updates += 1
        self._losses.append(float(loss.detach()))

    def _following(self, batch: Experience) -> NextActions:
        """What the policy does after each transition."""
        return NextActions.of(self.policy, batch.next_observation, self._rng)

    @torch.no_grad()
    def _targets(self, batch: Experience, following: NextActions) -> Tensor:
        """[batch, horizon, channel]: the outcome now, then what the target network expects next."""
        after = following.mean(self.target_network.channels(following.outputs(self.target_network)))
        return targets(self.network, batch, after, self._value_discount)


def _return_settings(atoms: int, policy: Policy, outcomes: OutcomeSet) -> ReturnSettings:
    """What a network of returns has to know, if they can be learned."""
    bound = outcomes.legend.reward_bound
    if bound is None:
        raise ValueError(
            f"return_atoms={atoms} needs outcomes that account for the reward, and these do not: "
            "return_atoms must be 0"
        )
    if atoms < FEWEST_ATOMS:
        raise ValueError(f"return_atoms must be 0, or {FEWEST_ATOMS} or more, got {atoms}")
    return ReturnSettings(int(atoms), policy.discount, bound)


@contextmanager
def _initialised(seed: int, purpose: str) -> Iterator[None]:
    """Weights that are made meanwhile depend on nothing but the seed and what they are for."""
    with torch.random.fork_rng():
        torch.manual_seed(int(generator(seed, purpose).integers(2**31)))
        yield
