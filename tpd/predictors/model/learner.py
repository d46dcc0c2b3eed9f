"""The learner of a one-step model of the environment, which is rolled out with the policy to predict."""

import copy
import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces

from tpd.core.outcomes import OutcomeSet
from tpd.core.seeding import generator
from tpd.core.types import Policy, State, Transitions
from tpd.envs import Environment
from tpd.envs.spaces import size_of
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import boolean, number, whole_number
from tpd.predictors.episode_split import EpisodeSplit
from tpd.predictors.model.predictor import ModelPredictor, refuse_impossible
from tpd.predictors.model.steps import StepBuffer, Steps
from tpd.predictors.model.world_model import WorldModel
from tpd.predictors.network.device import choose_device
from tpd.predictors.network.fitted import FittedLearner, seeded
from tpd.predictors.network.selection import LEAST_LOSS
from tpd.predictors.network.state import prefixed, unprefixed

log = logging.getLogger(__name__)

BETA = 0.5  # of the beta-NLL
CHECKS = 20  # evaluations on held-out transitions
HELD_OUT_SIZE = 10_000  # held-out transitions of one evaluation, at most


class LearnedModel(FittedLearner[ModelPredictor]):
    """Fits an ensemble of one-step models to kept transitions, and predicts by its rollouts.

    A tenth of the episodes is held out; the weights with the highest likelihood on them are used to predict.
    Learning happens only in `fit`.
    """

    tie = ModelPredictor.tie
    simulates, unsimulated = True, None

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        outcomes: OutcomeSet,
        *,
        horizon: int,
        members: int = 3,
        hidden: Sequence[int] = (128, 128),
        particles: int = 30,
        learning_rate: float = 1e-3,
        batch_size: int = 128,
        fit_updates: int = 10_000,
        replay_size: int = 1_000_000,
        device: str = "auto",
        seed: int = 0,
        mean: bool = False,
    ) -> None:
        refuse_impossible(env, outcomes)
        self.outcomes = outcomes
        self.batch_size = whole_number("batch_size", batch_size, at_least=1)
        self._rate = number("learning_rate", learning_rate, 0, 1, above_low=True)
        members = whole_number("members", members, at_least=1)
        widths = [whole_number("hidden", width, at_least=1) for width in hidden]
        self._device = choose_device(device)
        log.info("the model is trained on %s", self._device)
        observed, acted = size_of(env.observation_space), size_of(env.action_space)
        with seeded(seed, "model"):
            self._model = WorldModel(observed, acted, members, widths).to(self._device)
        best = copy.deepcopy(self._model).requires_grad_(False)
        tried = np.zeros(env.num_actions if env.discrete else 1, dtype=np.int64)
        predictor = ModelPredictor(
            best,
            tried,
            env.observation_space,
            env.action_space,
            horizon=whole_number("horizon", horizon, at_least=1),
            particles=whole_number("particles", particles, at_least=members),
            mean=boolean("mean", mean),
        ).completed(policy, outcomes)
        self._action_space: spaces.Space[Any] = env.action_space
        optimizer = torch.optim.Adam(self._model.parameters(), lr=self._rate, fused=True)
        updates = whole_number("fit_updates", fit_updates, at_least=0)
        networks = {"model": self._model, "best": best}
        super().__init__(predictor, networks, optimizer, generator(seed, "model batches"), updates)
        self._split = EpisodeSplit()
        size = whole_number("replay_size", replay_size, at_least=1)
        self._kept, self._held_out = StepBuffer(size), StepBuffer(size)
        self._best_loss = np.inf

    @property
    def horizon(self) -> int:
        return self._predictor.horizon

    @property
    def policy(self) -> Policy:
        assert self._predictor.policy is not None
        return self._predictor.policy

    def update(self, transitions: Transitions) -> None:
        """Keep a batch, split into training and held-out episodes."""
        self.outcomes.observe(transitions)  # checks them
        held_out = self._split.held_out(transitions)
        steps = Steps.of(transitions, self._action_space, self._model.observed)
        self._kept.add(steps[~held_out])
        self._held_out.add(steps[held_out])
        self._count_tries(transitions, discrete=isinstance(self._action_space, spaces.Discrete))

    def fit(self, progress: Callable[[int], None] = lambda updates: None, at_most: int | None = None) -> None:
        """Make all updates, and keep the weights with the lowest loss on held-out transitions.

        `at_most` limits the updates of this call; the next call continues.
        """
        if not len(self._kept):
            return
        if self._fitted == 0 and self.fit_updates:
            steps = self._kept[slice(None)]
            for model in (self._model, self._predictor.model):
                model.measure(steps.observation, steps.next_observation, steps.reward, steps.end)
        check_every = max(1, self.fit_updates // CHECKS)
        end = self._end(at_most)
        while self._fitted < end:
            self._learn()
            self._fitted += 1
            progress(1)
            if self._fitted % check_every == 0 or self._fitted == self.fit_updates:
                self._select()

    def state(self) -> State:
        """The models, the kept transitions, and the progress of the fit."""
        return {
            **super().state(),
            "_best_loss": np.array(self._best_loss),
            **prefixed("split", self._split.state()),
            **prefixed("kept", self._kept.state()),
            **prefixed("held_out", self._held_out.state()),
        }

    def restore(self, state: State) -> None:
        """Continue from that state."""
        super().restore(state)
        stored = CheckedArrays(state)
        self._best_loss = float(stored.like("_best_loss", np.zeros(()), low=LEAST_LOSS, finite=False))
        self._split.restore(unprefixed("split", state))
        due = Steps.none(size_of(self._predictor.observation_space), size_of(self._action_space))
        self._kept.restore(unprefixed("kept", state), due)
        self._held_out.restore(unprefixed("held_out", state), due)

    def metrics(self) -> dict[str, float]:
        """Training metrics since the last call."""
        figures, loss = {"explainer/model_updates": float(self.updates)}, self._mean_loss()
        return figures if loss is None else figures | {"explainer/model_loss": loss}

    def _learn(self) -> None:
        """One update of each ensemble member, on a random batch of its own."""
        for group in self._optimizer.param_groups:
            group["lr"] = self._rate * (1 - self._fitted / self.fit_updates)
        rows = self._rng.integers(len(self._kept), size=(self._model.members, self.batch_size))
        loss = self._model.losses(self._kept[rows].tensors(self._device), BETA).mean(dim=1).sum()
        self._step(loss)
        self._losses.append(float(loss.detach()) / self._model.members)

    @torch.no_grad()
    def _select(self) -> None:
        """Keep the weights if their loss on held-out transitions is the lowest so far."""
        held_out = self._held_out if len(self._held_out) else self._kept
        rows = np.linspace(0, len(held_out) - 1, min(len(held_out), HELD_OUT_SIZE)).astype(np.int64)
        every = np.broadcast_to(rows, (self._model.members, len(rows)))
        loss = float(self._model.losses(held_out[every].tensors(self._device), beta=0.0).mean())
        if loss < self._best_loss:
            self._best_loss = loss
            self._predictor.model.load_state_dict(self._model.state_dict())
