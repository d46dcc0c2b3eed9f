"""Loads learned dynamics models, mixtures with networks, and networks of other methods, with checks."""

import logging
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from gymnasium import spaces

from tpd.core.types import Predictor
from tpd.envs.spaces import from_plain, size_of
from tpd.guards.files import ANY, REAL, WHOLE, StoredArrays, blame
from tpd.guards.settings import shown, whole_number
from tpd.predictors.abilities import IncompletePredictor
from tpd.store.verdicts import LIMIT, read_verdicts

log = logging.getLogger(__name__)

MODEL, MIXTURE, RIVAL = "model", "mixture", "rival"
MOST_STEPS = 100_000  # of the horizon, and of particles
MOST_LAYERS = 100


def read_model(folder: Path, description: Mapping[str, Any], stored: StoredArrays) -> Predictor:
    """Load the described model from these arrays; it still needs the policy to predict."""
    from tpd.predictors.model.predictor import read  # torch is slow to import, and tables do not need it

    with blame(folder):
        num_actions = _check(description, stored.size)
    stored.take("tried", (num_actions,), WHOLE)
    arrays = stored.every(ANY)
    with blame(folder):
        return read(description, arrays)


def read_mixture(
    folder: Path, network: Any, description: Mapping[str, Any], stored: StoredArrays, width: int
) -> Predictor:
    """Load the described mixture of network and model; it still needs the policy to predict."""
    from tpd.predictors.mixture.predictor import MODEL, WEIGHTS, MixturePredictor

    model: Any = read_model(folder, description[MODEL], stored.under(f"{MODEL}."))
    weights = stored.take(WEIGHTS, (width,), REAL)
    stored.check(WEIGHTS, (weights >= 0) & (weights <= 1))
    if model.horizon != network.horizon:
        raise ValueError(
            f"{folder}: its network has horizon {network.horizon}, its model {model.horizon}, so the files "
            "are of different explainers: save the explainer again"
        )
    return MixturePredictor(network, model, weights)


def read_rival(
    folder: Path, description: Mapping[str, Any], stored: StoredArrays, num_actions: int, width: int
) -> Predictor:
    """Load the described network from these arrays, for `width` outcomes."""
    from tpd.predictors.rivals.networks.predictor import read  # torch is slow to import

    with blame(folder):
        horizon = whole_number("horizon", description["horizon"], at_least=1, at_most=MOST_STEPS)
    step = stored.take("step", (None,), WHOLE)
    stored.check("step", (step >= 0) & (step < horizon))
    column = stored.take("column", step.shape, WHOLE)
    stored.check("column", (column >= 0) & (column < width - 1))
    stored.take("factor", step.shape, REAL)
    tried = stored.take("tried", (num_actions,), WHOLE)
    stored.check("tried", tried >= 0)
    limits = read_verdicts(stored, 1, horizon, width, LIMIT)
    with blame(folder):
        if limits is None:
            raise ValueError(f"there are no arrays {LIMIT}..., which say what the method cannot predict")
        return read(description, stored.every(ANY), limits)


def as_far_as_possible(predictor: Predictor) -> Predictor:
    """The predictor; for a mixture without policy or outcomes, its network alone."""
    if not isinstance(predictor, IncompletePredictor) or predictor.complete:
        return predictor
    mixture: Any = predictor
    network: Predictor | None = getattr(mixture, "network", None)
    if network is None:
        return predictor
    log.warning(
        "learned answers come from the network alone: the one-step model needs the agent and the events"
    )
    return network


def _check(description: Mapping[str, Any], values: int) -> int:
    """Refuse a model with more weights than stored values; returns its number of actions."""
    members = whole_number("members", description["members"], at_least=1)
    for name in ("horizon", "particles"):
        whole_number(name, description[name], at_least=1, at_most=MOST_STEPS)
    states, actions = from_plain(description["observation_space"]), from_plain(description["action_space"])
    if not isinstance(states, spaces.Box):
        raise ValueError(f"a one-step model needs a Box observation space, got {shown(states)}")
    observed, acted = size_of(states), size_of(actions)
    layers = [observed + acted, *widths(description["hidden"]), observed]
    if members * max(before * after for before, after in pairwise(layers)) > values:
        raise ValueError(
            f"an ensemble of {members} networks with layers {layers} has more weights than the {values} "
            "values that are stored"
        )
    return acted if isinstance(actions, spaces.Discrete) else 1


def widths(hidden: Any) -> list[int]:
    """The widths of hidden layers; refused if there are too many."""
    if not isinstance(hidden, list) or len(hidden) > MOST_LAYERS:
        raise ValueError(f"hidden must be the widths of at most {MOST_LAYERS} layers, got {shown(hidden)}")
    return [whole_number("hidden", width, at_least=1) for width in hidden]
