"""The typed description of a run: its environment, its outcomes and its figures.

It is stored beside the explainer. Only the environment and the outcomes are rebuilt from it.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field

from tpd import __version__
from tpd.core.outcomes import Outcome, OutcomeSet
from tpd.core.types import Array
from tpd.envs import Environment
from tpd.envs.dataset import DatasetEnvironment
from tpd.envs.environment import name_action
from tpd.guards.atomic import atomic_write_text
from tpd.guards.files import blame, brief, require_file
from tpd.guards.versions import read_versioned
from tpd.store.descriptions import (
    ENV_NAMES,
    IDENTIFIER,
    Finite,
    NamedFunction,
    Plain,
    Stored,
    UntrustedError,
    described,
    modest,
    named,
    require_no_files,
    require_trust,
    validated,
    written,
)

RUN, LARGEST_RUN = "run.json", 2**18
KINDS: Mapping[str, type[Environment]] = {"environment": Environment, "dataset": DatasetEnvironment}
ENV_ID = rf"^({IDENTIFIER}(\.{IDENTIFIER})*:)?[A-Za-z0-9_./-]+$"
FILE_NAME = r"^[^/\\\x00]+$"
Word = Annotated[str, Field(max_length=1000)]
T = TypeVar("T")


class NotStoredError(ValueError):
    """A part of a run that is code, and so was not stored."""

    def __init__(self, message: str, what: str) -> None:
        super().__init__(message)
        self.what = what
        """`env` or `events`"""


class Unnamed(Stored):
    """Code that cannot be found by name, and the reason."""

    reason: Word

    def find(self, trusted: Sequence[str]) -> Any:
        raise NotStoredError(self.reason, "events")


class EnvironmentDescription(Stored):
    """An environment that can be rebuilt."""

    kind: Literal["environment", "dataset"]
    id: Annotated[str, Field(pattern=ENV_ID, max_length=300)]
    kwargs: Annotated[dict[str, Plain], AfterValidator(modest)] = {}
    max_episode_steps: Annotated[int, Field(ge=1, le=2**62)] | None = None
    action_names: list[Word] = []
    wrappers: list[NamedFunction] = []
    mask_function: NamedFunction | None = None
    observation_names: list[Word] = []
    choice_names: list[Word] = []

    def make(self, trusted: Sequence[str] = ()) -> Environment:
        """Build the environment, if the modules that it needs are trusted."""
        with _blame("env"):
            if self.kind == "environment":
                require_no_files(self.kwargs)
            for name in (self.id, *(self.kwargs.get(key) for key in ENV_NAMES)):
                if isinstance(name, str) and ":" in name:  # Gymnasium imports the module before the colon
                    require_trust(name.partition(":")[0], (*trusted, "tpd.envs"))
            given = self.mask_function
            mask = None if given is None else given.find(trusted)
            if given is not None and isinstance(mask, type):
                raise ValueError(f"{given.name!r} must be a function, got a class")
            env = KINDS[self.kind](
                self.id,
                self.kwargs,
                self.max_episode_steps,
                tuple(self.action_names),
                tuple(wrapper.find(trusted) for wrapper in self.wrappers),
                mask,
                tuple(self.observation_names),
                tuple(self.choice_names),
            )
            env.check()
        return env


class AbsentEnvironment(Stored):
    """An environment that cannot be stored as plain values, and the reason."""

    kind: Literal["absent"] = "absent"
    id: Word
    reason: Word

    def make(self, trusted: Sequence[str] = ()) -> Environment:
        raise NotStoredError(f"the env of this run is not stored: {self.reason}", "env")


class OutcomeDescription(Stored):
    """One outcome."""

    name: Word
    kind: Literal["event", "component"]
    function: NamedFunction | Unnamed
    low: Finite
    high: Finite
    weight: Finite | None = None
    first: bool
    info_keys: list[Word] = []

    def make(self, trusted: Sequence[str]) -> Outcome:
        return Outcome(
            self.name,
            self.function.find(trusted),
            self.low,
            self.high,
            self.weight,
            self.kind == "event",
            self.first,
            tuple(self.info_keys),
        )


class OutcomesDescription(Stored):
    """A set of outcomes, and its claims (for example, to be a partition)."""

    outcomes: Annotated[list[OutcomeDescription], Field(min_length=1)]
    partition: bool
    accounts_for_reward: bool

    def make(self, trusted: Sequence[str] = ()) -> OutcomeSet:
        """Build the set, if the modules of its functions are trusted."""
        if unnamed := [o for o in self.outcomes if isinstance(o.function, Unnamed) and not o.first]:
            names = ", ".join(repr(outcome.name) for outcome in unnamed)
            raise NotStoredError(
                f"the functions of {names} are not stored, because only functions at the top level of a "
                "module are",
                "events",
            )
        with _blame("outcomes"):
            made = [outcome.make(trusted) for outcome in self.outcomes]
            return OutcomeSet(made, self.partition, self.accounts_for_reward)


class Actions(Stored):
    """The names of discrete actions, or of the components of a vector action."""

    numbered: bool
    names: list[Word] = []

    def name(self, action: Array) -> str:
        return name_action(action, self.names, self.numbered)


class FigureDescription(Stored):
    """A figure, and descriptions of the states that it shows."""

    name: Annotated[str, Field(pattern=FILE_NAME, max_length=200)]
    title: Word
    states: Annotated[list[Word], Field(min_length=1)]


class RunDescription(Stored):
    """The description of a run."""

    format: Literal[1] = 1
    written_by: str = __version__
    name: Word
    seed: Annotated[int, Field(ge=0)]
    kind: Word
    """Equal for runs that differ only in their seed."""
    env: Annotated[EnvironmentDescription | AbsentEnvironment, Field(discriminator="kind")]
    outcomes: OutcomesDescription
    actions: Actions
    figures: list[FigureDescription] = []
    maps: dict[Word, Word] = {}
    """Which state field is used for which axis of a map."""
    reference: dict[Word, dict[Word, tuple[Finite, Finite]]] = {}
    """Reference errors to compare with: mean and standard deviation of each metric, by outcome."""

    @property
    def title(self) -> str:
        return " ".join(f"{self.name}, seed {self.seed}".split())  # one line, whatever the name contains


def write(run: RunDescription, folder: Path) -> None:
    atomic_write_text(folder / RUN, json.dumps(written(run), indent=2))


def read(folder: Path) -> RunDescription:
    """Read the description in the folder of an explainer; a ValueError names the invalid field."""
    path = folder / RUN
    require_file(path, LARGEST_RUN)
    plain = read_versioned(path, "a description of a run")
    with blame(path):
        return validated(RunDescription, plain)


def describe_env(env: Environment) -> EnvironmentDescription | AbsentEnvironment:
    """The environment as plain values, or the reason why that is impossible."""
    kinds = {made: kind for kind, made in KINDS.items()}
    try:
        if type(env) not in kinds:
            raise ValueError(
                f"a {type(env).__module__}.{type(env).__qualname__} cannot be stored as plain values"
            )
        mask = env.mask_function
        if type(env) is Environment:
            require_no_files(described(env.kwargs))
        plain = {
            "kind": kinds[type(env)],
            "id": env.id,
            "kwargs": described({name: value for name, value in env.kwargs.items() if name != "render_mode"}),
            "max_episode_steps": env.max_episode_steps,
            "action_names": [str(name) for name in env.action_names],
            "wrappers": [written(named(wrapper)) for wrapper in env.wrappers],
            "mask_function": None if mask is None else written(named(mask)),
            "observation_names": [str(name) for name in env.observation_names],
            "choice_names": [str(name) for name in env.choice_names],
        }
        return validated(EnvironmentDescription, plain)
    except (ValueError, TypeError) as error:
        return AbsentEnvironment(id=str(env.id)[:1000], reason=brief(error))


def describe_outcomes(outcomes: OutcomeSet) -> OutcomesDescription:
    """The outcomes as plain values; a function without a name is replaced by the reason."""
    plain = [
        {
            "name": outcome.name,
            "kind": "event" if outcome.is_event else "component",
            "function": written(_function(outcome)),
            "low": float(outcome.low),
            "high": float(outcome.high),
            "weight": None if outcome.weight is None else float(outcome.weight),
            "first": outcome.first,
            "info_keys": list(outcome.info_keys),
        }
        for outcome in outcomes.outcomes
    ]
    claims = {"partition": outcomes.partition, "accounts_for_reward": outcomes.accounts_for_reward}
    return validated(OutcomesDescription, {"outcomes": plain, **claims})


def _function(outcome: Outcome) -> NamedFunction | Unnamed:
    try:
        return named(outcome.function)
    except ValueError as error:
        return Unnamed(reason=f"the function of {outcome.name!r} is not stored: {brief(error)}"[:1000])


def describe_actions(env: Environment) -> Actions:
    """The names of the environment's actions."""
    names = env.numbered_action_names or env.action_names
    return validated(Actions, {"numbered": env.discrete, "names": [str(name) for name in names]})


@contextmanager
def _blame(part: str) -> Iterator[None]:
    """Name the part of a stored run in errors."""
    try:
        yield
    except NotStoredError:
        raise
    except UntrustedError as error:
        raise UntrustedError(f"the {part} of this run: {error}") from error
    except Exception as error:  # any error while building it
        raise ValueError(f"the {part} of this run cannot be built: {brief(error)}") from error
