"""Policies stored with their explainers, as plain values and arrays.

Tables are stored as arrays. Agents of a library are stored and rebuilt by the module of ours that
`policy_kinds.json` names for the library. Functions are stored by name, and imported if they are trusted.
"""

import importlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from tpd.core.types import Array, DiscretePolicy, Policy
from tpd.envs import Environment
from tpd.envs.spaces import from_plain, to_plain
from tpd.guards.files import REAL, StoredArrays, brief
from tpd.policies.function import FunctionPolicy, function_policy
from tpd.policies.stored import AbsentPolicy, policy_arrays
from tpd.policies.tabular import TabularPolicy
from tpd.store.descriptions import NamedFunction, Plain, Stored, UntrustedError, named, written

Arrays = dict[str, Array]


class Table(Stored):
    """The probabilities, and optionally the values, of all actions in all states."""

    kind: Literal["table"] = "table"


class Function(Stored):
    """A function of observations."""

    kind: Literal["function"] = "function"
    function: NamedFunction
    action_space: dict[str, Plain]


class Agent(Stored):
    """An agent of a library."""

    kind: Literal["agent"] = "agent"
    library: str
    settings: dict[str, Plain]
    """Validated field by field by the module for the library."""


class Absent(Stored):
    """No policy, and the reason."""

    kind: Literal["absent"] = "absent"
    reason: Annotated[str, Field(max_length=1000)]


Described = Table | Function | Agent | Absent
StoredPolicy = Annotated[Described, Field(discriminator="kind")]


def describe(policy: Policy, env: Environment, as_table: bool) -> tuple[dict[str, Any], Arrays]:
    """The policy as plain values and arrays; if that is impossible, a description with the reason."""
    try:
        record, arrays = _described(policy, env, as_table)
    except (ValueError, TypeError) as error:
        record, arrays = Absent(reason=brief(error)), {}
    return written(record), arrays


def _described(policy: Policy, env: Environment, as_table: bool) -> tuple[Stored, Arrays]:
    if isinstance(policy, AbsentPolicy):
        return Absent(reason=policy.reason), {}
    libraries = {kind["policies"]: library for library, kind in _kinds().items()}
    library = libraries.get(type(policy).__module__)
    if not as_table and library is not None:
        settings, arrays = _module(library).describe(policy, env)
        return Agent(library=library, settings=settings), arrays
    if not as_table and isinstance(policy, FunctionPolicy):
        return Function(function=named(policy.function), action_space=to_plain(policy.space)), {}
    if not isinstance(policy, DiscretePolicy) or not env.tabular:
        raise ValueError(f"a {type(policy).__name__} cannot be stored; SB3 agents, functions and tables can")
    return Table(), policy_arrays(policy, env)


def make(
    record: Described, arrays: StoredArrays, discount: float, env: Environment | None, trusted: Sequence[str]
) -> Policy:
    """Rebuild the policy; an absent policy if it needs a module that is not trusted."""
    match record:
        case Table():
            probabilities = arrays.take("probabilities", (None, None), REAL)
            values = arrays.optional("action_values", probabilities.shape, REAL, finite=False)
            if values is not None:  # invalid actions may have the value -inf
                arrays.check("action_values", values < np.inf)
            return TabularPolicy(probabilities, discount, values)
        case Function():
            try:
                function = record.function.find(trusted)
            except UntrustedError as error:
                return AbsentPolicy(discount, str(error))
            return function_policy(function, discount, from_plain(record.action_space))
        case Agent():
            if record.library not in _kinds():
                raise ValueError(
                    f"policy.library must be one of {', '.join(_kinds())}, got {record.library!r}"
                )
            made: Policy = _module(record.library).make(record.settings, arrays, discount, env)
            return made
        case Absent():
            return AbsentPolicy(discount, record.reason)


def _module(library: str) -> Any:
    return importlib.import_module(_kinds()[library]["stored"])


@cache
def _kinds() -> Mapping[str, Mapping[str, str]]:
    """The supported libraries, and our modules that store and rebuild their agents."""
    found: dict[str, dict[str, str]] = json.loads((files("tpd.store") / "policy_kinds.json").read_text())
    return found
