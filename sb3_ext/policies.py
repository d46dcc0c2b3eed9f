"""Wraps SB3 models as policies for tpd."""

import copy
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from gymnasium import spaces
from sb3_contrib import MaskablePPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy

from sb3_ext.stages import PROGRESS
from tpd.core.observations import unpack
from tpd.core.types import Array, BoolArray, FloatArray, IntArray, Rng
from tpd.envs import Environment
from tpd.guards.settings import boolean
from tpd.predictors.network.device import seed_torch
from tpd.sources.exploration import draw, mix, uniform

Normalizer = Callable[[Any], Any]
Mask = Callable[[Array], BoolArray]


def as_policy(
    model: BaseAlgorithm,
    *,
    deterministic: bool = True,
    normalization: Normalizer | Literal[False] | None = None,
    mask: Mask | None = None,
) -> "SB3Policy":
    """Wrap a model as a policy, during or after its training.

    deterministic: take the best action, as in SB3's own evaluation; False: explore as in training, by
        sampling from its distribution, or epsilon-greedily at its current rate.
    normalization: applied to observations before the model sees them; False: none, for a model that shows
        that it was trained under VecNormalize.
    mask: the valid actions of observations, used only by a model trained with masks.
    """
    discrete = isinstance(model.action_space, spaces.Discrete)
    recurrent = isinstance(model.policy, RecurrentActorCriticPolicy)
    kinds: dict[tuple[bool, bool], type[SB3Policy]] = {
        (False, False): SB3Policy,
        (True, False): DiscreteSB3Policy,
        (False, True): RecurrentSB3Policy,
        (True, True): DiscreteRecurrentSB3Policy,
    }
    known = spaces.Discrete | spaces.Box | spaces.MultiDiscrete | spaces.MultiBinary
    if not isinstance(model.action_space, known):
        raise TypeError(
            f"actions of {model.action_space} are not supported: use Discrete, Box, MultiDiscrete or "
            "MultiBinary"
        )
    if not deterministic and getattr(model, "use_sde", False):
        raise ValueError(
            "an agent with gSDE keeps its noise for many steps, so its actions do not depend on the "
            "observation alone: explain it with deterministic=true"
        )
    if isinstance(model, MaskablePPO) and mask is None:
        raise ValueError(
            "a MaskablePPO model needs action masks: pass mask=, a function of observations (env.mask)"
        )
    if normalization is None and _lost_normalization(model):
        raise ValueError(
            "the model was trained under VecNormalize but no longer has it: pass its statistics as "
            "vec_normalize (in as_policy: normalization), or False to explain it without them"
        )
    return kinds[discrete, recurrent](model, deterministic, normalization or None, mask)


def policy_in(
    env: Environment,
    model: BaseAlgorithm,
    deterministic: bool,
    normalization: Normalizer | Literal[False] | None = None,
) -> "SB3Policy":
    """As `as_policy`, for a model in this environment and with its action masks."""
    return as_policy(
        model,
        deterministic=boolean("deterministic", deterministic),
        normalization=normalization,
        mask=env.mask if env.discrete else None,
    )


def _lost_normalization(model: BaseAlgorithm) -> bool:
    """Whether it was trained under VecNormalize (only on-policy algorithms show it) but no longer has it."""
    original = getattr(model, "_last_original_obs", None)
    shows = isinstance(model, OnPolicyAlgorithm) and original is not None
    return shows and model.get_vec_normalize_env() is None


class SB3Policy:
    """A model with continuous actions, or with actions that consist of parts."""

    def __init__(
        self, model: BaseAlgorithm, deterministic: bool, normalization: Normalizer | None, mask: Mask | None
    ) -> None:
        self.model, self.deterministic = model, deterministic
        self.discount = float(getattr(model, "gamma", 1.0))
        self.normalization, self.mask = normalization, mask

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the model without its environments and buffers."""
        model = copy.copy(self.model)
        needed = {"policy", "device", *self.model._get_torch_save_params()[0]}
        for name in set(self.model._excluded_save_params()) - needed:
            setattr(model, name, None)
        vars(model).pop(PROGRESS, None)  # it refers to the whole model
        return {**vars(self), "model": model}

    def action(self, observations: Array) -> Array:
        """[batch, ...]: the most likely action."""
        return self._predict(observations, deterministic=True)

    def sample(self, observations: Array, rng: Rng) -> Array:
        """[batch, ...]"""
        if self.deterministic:
            return self.action(observations)
        with torch.random.fork_rng():
            seed_torch(int(rng.integers(2**31)))
            return self._predict(observations, deterministic=False)

    def action_values(self, observations: Array) -> FloatArray | None:
        """None: there are too many actions to list their values."""
        return None

    def _seen(self, observations: Array) -> Any:
        """Observations in the form that the model expects."""
        given = unpack(observations)
        return given if self.normalization is None else self.normalization(given)

    def _predict(self, observations: Array, deterministic: bool) -> Array:
        return self.model.predict(self._seen(observations), deterministic=deterministic)[0]

    @property
    def _playing(self) -> BasePolicy:
        """The model's policy, with dropout and batch normalisation as in playing."""
        policy = self.model.policy
        if policy.training:
            policy.set_training_mode(False)
        return policy

    def _tensor(self, observations: Array) -> Any:
        return self.model.policy.obs_to_tensor(self._seen(observations))[0]


class DiscreteSB3Policy(SB3Policy):
    """A model with discrete actions: categorical, or with values or quantiles for each action."""

    def probabilities(self, observations: Array) -> FloatArray:
        """[batch, num_actions]"""
        if self.deterministic:
            return np.eye(self._num_actions)[self.action(observations)]
        if self._acts:
            return self._distribution(observations)
        greedy = np.eye(self._num_actions)[self.action(observations)]
        anything = uniform(np.ones(greedy.shape, dtype=np.bool_))
        return mix(greedy, anything, float(getattr(self.model, "exploration_rate", 0.0)))

    def action(self, observations: Array) -> IntArray:
        """[batch]: the best action. Unlike the model's `predict`, this does not walk through all modules."""
        preference = self.action_values(observations)
        if preference is None and self._acts:
            preference = self._distribution(observations)
        if preference is None:
            return np.asarray(self._predict(observations, deterministic=True), dtype=np.int64)
        return np.asarray(np.argmax(preference, axis=1))

    def sample(self, observations: Array, rng: Rng) -> IntArray:
        return draw(self.probabilities(observations), rng)

    def action_values(self, observations: Array) -> FloatArray | None:
        """[batch, num_actions], if the model learns them."""
        policy: Any = self._playing
        with torch.no_grad():
            if (network := getattr(policy, "q_net", None)) is not None:
                values = network(self._tensor(observations))
            elif (network := getattr(policy, "quantile_net", None)) is not None:
                values = network(self._tensor(observations)).mean(dim=1)
            else:
                return None
        return np.asarray(values.numpy(force=True), dtype=np.float64)

    @property
    def _num_actions(self) -> int:
        assert isinstance(self.model.action_space, spaces.Discrete)
        return int(self.model.action_space.n)

    @property
    def _acts(self) -> bool:
        """Whether it has an actor, with a distribution of actions."""
        return hasattr(self.model.policy, "get_distribution")

    def _distribution(self, observations: Array) -> FloatArray:
        """[batch, num_actions]: the distribution from which an actor samples."""
        policy: Any = self._playing
        masks = {}
        if isinstance(self.model, MaskablePPO):
            assert self.mask is not None
            masks = {"action_masks": self.mask(observations)}
        with torch.no_grad():
            distribution = policy.get_distribution(self._tensor(observations), **masks)
        return _exact(distribution.distribution.probs)


class RecurrentSB3Policy(SB3Policy):
    """A recurrent model; the hidden state of its actor is appended to the observations."""

    @property
    def version(self) -> int:
        """The number of updates of the model."""
        return int(self.model._n_updates)

    def start(self, count: int) -> FloatArray:
        """[count, hidden state]: zeros."""
        return np.zeros((count, 2 * int(np.prod(self._shape))), dtype=np.float32)

    def advance(self, observations: Array) -> FloatArray:
        """[batch, hidden state]"""
        _, states = self._run(observations)
        flat = [state.numpy(force=True).swapaxes(0, 1).reshape(len(observations), -1) for state in states]
        return np.concatenate(flat, axis=1)

    def _predict(self, observations: Array, deterministic: bool) -> Array:
        distribution, _ = self._run(observations)
        actions: Array = distribution.get_actions(deterministic=deterministic).numpy(force=True)
        space = self.model.action_space
        return np.clip(actions, space.low, space.high) if isinstance(space, spaces.Box) else actions

    @property
    def _shape(self) -> tuple[int, int]:
        """Layers and size of the actor's hidden states."""
        actor = self._recurrent.lstm_actor
        return actor.num_layers, actor.hidden_size

    @property
    def _recurrent(self) -> RecurrentActorCriticPolicy:
        policy = self._playing
        assert isinstance(policy, RecurrentActorCriticPolicy)
        return policy

    def _run(self, observations: Array) -> tuple[Any, tuple[torch.Tensor, ...]]:
        """The distribution of actions, and the next hidden states."""
        layers, size = self._shape
        due = int(np.prod(self.model.observation_space.shape or ())) + 2 * layers * size
        if observations.ndim != 2 or observations.shape[1] != due:
            raise ValueError(
                f"observations of a recurrent agent must include its hidden state, {due} numbers in total, "
                f"got {observations.shape[1:]}: add it with tpd.sources.hidden_state.with_initial_state"
            )
        seen, state = np.split(observations, [observations.shape[1] - 2 * layers * size], axis=1)
        hidden = torch.as_tensor(state, dtype=torch.float32).reshape(len(state), 2, layers, size)
        states = tuple(hidden[:, i].swapaxes(0, 1).contiguous() for i in range(2))
        with torch.no_grad():
            return self._recurrent.get_distribution(
                self._tensor(seen),
                states,  # type: ignore[arg-type]
                torch.zeros(len(observations)),
            )


class DiscreteRecurrentSB3Policy(RecurrentSB3Policy, DiscreteSB3Policy):
    """A recurrent model with discrete actions."""

    def _distribution(self, observations: Array) -> FloatArray:
        return _exact(self._run(observations)[0].distribution.probs)


def _exact(probabilities: torch.Tensor) -> FloatArray:
    """Probabilities normalised in double precision."""
    exact = probabilities.numpy(force=True).astype(np.float64)
    return np.asarray(exact / exact.sum(axis=1, keepdims=True))
