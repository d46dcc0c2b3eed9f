"""A trained model of the environment as a predictor, and its storage as plain values and arrays."""

import copy
import functools
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces

from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, FloatArray, IntArray, Policy
from tpd.envs import Environment
from tpd.envs.spaces import from_plain, size_of, to_plain
from tpd.guards.settings import boolean, shown
from tpd.predictors.abilities import ONE_TRAJECTORY
from tpd.predictors.model.simulation import Simulation
from tpd.predictors.model.world_model import WorldModel
from tpd.predictors.network.fitted import check_actions, tries
from tpd.predictors.network.state import fill, prefixed, unprefixed, weights

WEIGHT = "weight"
KIND = "model"


class ImpossibleModelError(TypeError):
    """The environment or the outcomes do not allow a learned model."""


def refuse_impossible(env: Environment, outcomes: OutcomeSet) -> None:
    """Raise `ImpossibleModelError` for spaces and outcomes that a learned model cannot predict."""
    space = env.observation_space
    if not isinstance(space, spaces.Box) or space.dtype.kind != "f":
        raise ImpossibleModelError(
            f"a one-step model needs a Box of floats that is not an image as observations, but {env.id} has "
            f"{shown(space)}: use explainer=network"
        )
    if env.parts is not None:
        raise ImpossibleModelError(
            f"a one-step model needs Discrete or Box actions, but {env.id} has {env.action_space}: use "
            "explainer=network"
        )
    for outcome in outcomes.outcomes:
        if outcome.info_keys:
            raise ImpossibleModelError(
                f"outcome {outcome.name!r} reads info[{outcome.info_keys[0]!r}], which a one-step model does "
                "not predict: use explainer=network"
            )


class ModelPredictor:
    """Predicts by rollouts in a learned model; policy and outcomes are not stored, `completed` adds them."""

    tie = 0.03  # models are never exact
    simulates, unsimulated = True, None

    def __init__(
        self,
        model: WorldModel,
        tried: IntArray,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        horizon: int,
        particles: int,
        mean: bool = False,
    ) -> None:
        if particles % model.members:
            raise ValueError(
                f"particles must be a multiple of the {model.members} ensemble members, got {particles}"
            )
        self.model = model
        self.tried = tried
        """[num_actions]: how often each action was seen; one total if actions are not discrete"""
        self.observation_space, self.action_space = observation_space, action_space
        self._discrete = isinstance(action_space, spaces.Discrete)
        self.horizon, self.particles, self.mean = horizon, particles, mean
        self.policy: Policy | None = None
        self.outcomes: OutcomeSet | None = None

    @property
    def remark(self) -> str:
        """What users must know about the method to read its numbers; empty if nothing."""
        return ONE_TRAJECTORY if self.mean else ""

    def completed(self, policy: Policy | None, outcomes: OutcomeSet | None) -> "ModelPredictor":
        """The same predictor with this policy and these outcomes; it needs both to predict."""
        whole = copy.copy(self)
        whole.__dict__.pop("_simulation", None)  # it is of the policy and outcomes before
        whole.policy, whole.outcomes = policy, outcomes
        return whole

    @property
    def complete(self) -> bool:
        """Whether it has policy and outcomes."""
        return self.policy is not None and self.outcomes is not None

    @functools.cached_property
    def _simulation(self) -> Simulation:
        for name in ("policy", "outcomes"):
            if getattr(self, name) is None:
                raise ValueError(
                    f"the learned dynamics model needs the {name} of the run, which could not be loaded: "
                    'pass agent= and events= to tpd.load, or trust=["my_module"]'
                )
        assert self.policy is not None
        assert self.outcomes is not None
        return Simulation(
            self.model,
            self.action_space,
            self.policy,
            self.outcomes,
            horizon=self.horizon,
            particles=self.particles,
            mean=self.mean,
        )

    def predict(self, observations: Array, actions: Array) -> FloatArray:
        """[batch, horizon, outcome]"""
        check_actions(actions, self.tried, self._discrete)
        return self._simulation.expected(observations, actions)

    def support(self, observations: Array, actions: Array) -> FloatArray:
        """[batch]: how often the action was tried in any state; 0 far from all training data."""
        own = observations.reshape(len(observations), -1)[:, : self.model.observed]
        seen = torch.as_tensor(own, dtype=torch.float32, device=self.model.scales.low.device)
        unseen = self.model.scales.unseen(seen).numpy(force=True)
        return tries(actions, self.tried, self._discrete, unseen)

    def description(self) -> dict[str, Any]:
        """The architecture of the model, as plain values."""
        return {
            "kind": KIND,
            "observation_space": to_plain(self.observation_space),
            "action_space": to_plain(self.action_space),
            "members": self.model.members,
            "hidden": list(self.model.hidden),
            "horizon": self.horizon,
            "particles": self.particles,
            "mean": self.mean,
            "device": str(self.model.scales.mean.device),
        }

    def arrays(self) -> dict[str, Array]:
        """The weights, and the counts of actions."""
        return prefixed(WEIGHT, weights(self.model)) | {"tried": self.tried}


def read(description: Mapping[str, Any], arrays: Mapping[str, Array]) -> ModelPredictor:
    """The predictor with this `description` and these `arrays`; it still has to be completed."""
    both = from_plain(description["observation_space"]), from_plain(description["action_space"])
    observed, acted = map(size_of, both)
    model = WorldModel(observed, acted, description["members"], description["hidden"])
    fill(model, unprefixed(WEIGHT, arrays))
    limits = {name: description[name] for name in ("horizon", "particles")}
    limits["mean"] = boolean("mean", description.get("mean", False))
    return ModelPredictor(model, arrays["tried"], *both, **limits)
