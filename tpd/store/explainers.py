"""Saves and loads explainers as plain arrays and JSON, so that loading runs no code from the file.

What is read is checked for consistency; an invalid file is refused with a one-line error.
"""

import itertools
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from gymnasium import spaces

from tpd import __version__
from tpd.core.outcomes import OutcomeSet
from tpd.core.types import Array, Policy, Predictor
from tpd.envs import Environment
from tpd.envs.action_parts import ActionParts
from tpd.envs.spaces import from_plain, size_of
from tpd.guards.atomic import atomic_write_text
from tpd.guards.files import ANY, REAL, WHOLE, StoredArrays, blame, write_arrays
from tpd.guards.settings import number, shown, whole_number
from tpd.guards.versions import WRITTEN_BY, read_versioned
from tpd.policies.stored import AbsentPolicy
from tpd.predictors.abilities import IncompletePredictor
from tpd.predictors.explainer import Explainer
from tpd.predictors.known_errors import KnownErrors
from tpd.predictors.pair_table import HasTable
from tpd.store import learned_models, run_descriptions, stored_policies
from tpd.store.descriptions import validated
from tpd.store.learned_models import MIXTURE, MODEL, RIVAL
from tpd.store.legends import LARGEST, read_legend
from tpd.store.pair_tables import read_table, table_arrays
from tpd.store.verdicts import read_verdicts, verdict_arrays

log = logging.getLogger(__name__)

DESCRIPTION, ARRAYS, AGENT = "explainer.json", "arrays.npz", "agent.npz"
FORMAT = 7
LONGEST_REMARK = 300
ERROR = "known_error_"
BOTH = 2
"""The kinds of pairs that have verdicts: the policy's own actions, and foils."""


@runtime_checkable
class HasNetwork(Protocol):
    """A predictor that is saved as a network."""

    def description(self) -> Mapping[str, Any]:
        """The architecture of the network, as plain values."""

    def arrays(self) -> Mapping[str, Array]:
        """Its weights."""


def check(predictor: Predictor) -> None:
    """Refuse a predictor that cannot be saved."""
    if not isinstance(predictor, HasTable | HasNetwork):
        raise TypeError(f"{type(predictor).__name__} has no method `table`, so it cannot be saved")


def save(explainer: Explainer, env: Environment, folder: Path) -> None:
    """Write the predictor, and the policy if it can be stored as plain values."""
    check(explainer.predictor)
    tabular = not isinstance(explainer.predictor, HasNetwork)
    policy, agent = stored_policies.describe(explainer.policy, env, as_table=tabular)
    description: dict[str, Any] = {
        "format": FORMAT,
        WRITTEN_BY: __version__,
        "discount": explainer.policy.discount,
        "legend": asdict(explainer.legend),
        "policy": policy,
    }
    if isinstance(explainer.predictor, HasNetwork):
        description["network"] = explainer.predictor.description()
        arrays = dict(explainer.predictor.arrays())
    else:
        assert isinstance(explainer.predictor, HasTable)
        table = explainer.predictor.table()
        arrays, description["remark"] = table_arrays(table), table.remark
    arrays |= verdict_arrays(explainer.verdicts)
    if explainer.errors is not None:
        arrays |= {f"{ERROR}{name}": values for name, values in explainer.errors.arrays().items()}
    folder.mkdir(parents=True, exist_ok=True)
    write_arrays(folder / ARRAYS, arrays)
    write_arrays(folder / AGENT, agent)
    atomic_write_text(folder / DESCRIPTION, json.dumps(description, indent=2))


def _remark(folder: Path, description: Mapping[str, Any]) -> str:
    with blame(folder / DESCRIPTION):
        remark = description.get("remark")
        if not isinstance(remark, str) or len(remark) > LONGEST_REMARK or not remark.isprintable():
            raise ValueError(f"remark must be printable text of at most {LONGEST_REMARK} characters")
        return remark


def load(
    folder: Path,
    env: Environment | None = None,
    trusted: Sequence[str] = (),
    with_agent: bool = True,
    outcomes: OutcomeSet | None = None,
    policy: Policy | None = None,
) -> Explainer:
    """Load an explainer that `save` wrote, and the policy that it explains.

    env: provides the action masks that a policy trained with masks needs.
    trusted: modules that may be imported for a policy that is a function.
    with_agent: whether to load the agent of a library, which imports that library, even if the predictor does
        not need it.
    outcomes: used instead of the stored ones, by predictors that need them.
    policy: used instead of the stored one.
    """
    description, stored = read_description(folder), StoredArrays(folder / ARRAYS)
    with blame(folder / DESCRIPTION):
        legend = read_legend(description["legend"])
        discount = number("discount", description["discount"], 0, 1)
        about: stored_policies.Described = validated(
            stored_policies.StoredPolicy, description["policy"], "policy"
        )
    if isinstance(about, stored_policies.Agent) and not with_agent and not _asks_agent(description):
        about = stored_policies.Absent(reason="the explainer was loaded without it")
    agent = StoredArrays(folder / AGENT)
    with blame(folder):
        policy = policy or stored_policies.make(about, agent, discount, env, trusted)
    width = len(legend.names) + 1
    if "network" in description:
        predictor = _network(folder, description["network"], stored, width)
        predictor = _completed(predictor, policy, folder, trusted, outcomes)
    else:
        predictor = read_table(stored, agent.take("probabilities", (None, None), REAL).shape, legend)
        predictor = replace(predictor, remark=_remark(folder, description))
    verdicts = read_verdicts(stored, BOTH, predictor.horizon, width)
    known = stored.under(ERROR).every(ANY)  # empty if it was not calibrated
    with blame(folder / ARRAYS):
        errors = KnownErrors.read(known, predictor.horizon, width) if known else None
    return Explainer(predictor, policy, legend, verdicts, errors)


def _completed(
    predictor: Predictor, policy: Policy, folder: Path, trusted: Sequence[str], outcomes: OutcomeSet | None
) -> Predictor:
    """Give the predictor the policy and the outcomes if it needs them and they are available."""
    if not isinstance(predictor, IncompletePredictor) or predictor.complete:
        return predictor
    known = None if isinstance(policy, AbsentPolicy) else policy
    predictor = predictor.completed(known, outcomes)
    assert isinstance(predictor, IncompletePredictor)
    if predictor.complete:
        return predictor
    if outcomes is None and (folder / run_descriptions.RUN).exists():
        try:
            outcomes = run_descriptions.read(folder).outcomes.make(trusted)
        except ValueError as error:  # unnamed functions, or modules that are not trusted
            log.warning("%s", error)
    return predictor.completed(known, outcomes)


def _asks_agent(description: Mapping[str, Any]) -> bool:
    """Whether the network, alone or in a mixture, uses the agent's action values as input."""
    network = description.get("network", {})
    inner = network.get("network") if network.get("kind") == MIXTURE else network
    return isinstance(inner, dict) and inner.get("margin") is True


def read_description(folder: Path) -> dict[str, Any]:
    """Read the description of an explainer; refused if its format is another one."""
    path = folder / DESCRIPTION
    description = read_versioned(path, "a description of an explainer")
    if description.get("format") != FORMAT:
        raise ValueError(
            f"{path}: has format {description.get('format')!r}, but this version of tpd reads format {FORMAT}"
        )
    if not isinstance(description.get("network", {}), dict):
        raise ValueError(f"{path}: network must be an object with settings")
    return description


def _network(folder: Path, network: Mapping[str, Any], stored: StoredArrays, width: int) -> Predictor:
    """Load a network with `width` outcomes, a learned model, or a mixture of both."""
    if network.get("kind") == MODEL:
        return learned_models.read_model(folder, network, stored)
    if network.get("kind") == RIVAL:
        with blame(folder / DESCRIPTION):
            outputs = len(stored.take("step", (None,), WHOLE))
            num_actions = _check_size(network, outputs, stored.size)
        return learned_models.read_rival(folder, network, stored, num_actions, width)
    if network.get("kind") == MIXTURE:
        inner = network.get("network")
        if not isinstance(inner, dict) or inner.get("kind") in (MIXTURE, MODEL, RIVAL):
            raise ValueError(f"{folder / DESCRIPTION}: the mixture has no network")
        one = _network(folder, inner, stored.under("network."), width)
        return learned_models.read_mixture(folder, one, network, stored, width)
    from tpd.predictors.network.predictor import read  # torch is slow to import, and tables do not need it

    with blame(folder / DESCRIPTION):
        num_actions = _check_size(network, _outputs(network, width), stored.size)
        if "returns" in network:
            _check_returns(network, stored.size)
        if network["discount"] is not None:
            number("discount", network["discount"], 0, 1)
    stored.take("tried", (num_actions,), WHOLE)
    arrays = stored.every(ANY)
    with blame(folder):
        return read(network, arrays)


def _outputs(network: Mapping[str, Any], width: int) -> int:
    """Number of outputs of the larger head of a network with `width` outcomes."""
    from tpd.predictors.network.columns import Columns

    if network["columns"]["width"] != width:  # checked before allocating anything of that size
        raise ValueError(
            f"the network predicts {shown(network['columns']['width'])} outcomes, expected {width}"
        )
    columns = Columns.read(network["columns"])
    horizon = whole_number("horizon", network["horizon"], at_least=1)
    return max(horizon * columns.channels, columns.times(horizon))


def _check_returns(network: Mapping[str, Any], values: int) -> None:
    """Refuse an invalid return network beside this one; it outputs a centre, a spread, and atoms."""
    returns = network["returns"]
    atoms = whole_number("atoms", returns["atoms"], at_least=2)
    _check_size(network, (2 + atoms) * whole_number("horizon", network["horizon"], at_least=1), values)
    number("discount", returns["discount"], 0, 1)
    number("bound", returns["bound"], 0, LARGEST)


def _check_size(network: Mapping[str, Any], outputs: int, values: int) -> int:
    """Refuse a network with more weights than stored values; returns its number of actions."""
    from tpd.predictors.network.encoders import encoded_size

    inputs, observed = encoded_size(from_plain(network["observation_space"]))
    actions = from_plain(network["action_space"])
    discrete, parts = isinstance(actions, spaces.Discrete), ActionParts.of(actions)
    acted = sum(parts.counts.tolist()) if parts is not None else size_of(actions)
    hidden = learned_models.widths(network["hidden"])
    inputs += whole_number("hidden_state", network["hidden_state"], at_least=0)
    layers = [inputs if discrete else inputs + acted, *hidden, outputs]
    if max(observed, acted, *(before * after for before, after in itertools.pairwise(layers))) > values:
        raise ValueError(
            f"a network with layers {layers} has more weights than the {values} values that are stored"
        )
    return acted if discrete else 1
