"""The questions that `tpd-explain` accepts, and how they are parsed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from tpd.guards.files import brief
from tpd.guards.settings import boolean, did_you_mean, number, shown, whole_number
from tpd.predictors.simulation import PRECISION
from tpd.tracking.fetch import did_you_mean_run

HELP = """tpd-explain answers why an agent did what it did, from a finished run.

  tpd-explain run=<MLflow run id, model URI or output folder> [key=value ...]

Where:     row=2 col=0 fuel=6 passenger=false   the fields of a state, where the environment has them
           state=417   state=[0.1, 0, 0.02, 0]  its number, or the observation
           episode=7 step=42                    a step of a recorded episode; state=start is the first one
           (only run=)                          lists moments that are worth asking about, found within
                                                seconds=20
What:      action=south foil=east               by name or number; by default the agent's own and the
                                                best of the others
Compare:   foil_state={row: 2, ...}             with another state, instead of another action
           against=<another run>                with another policy or seed, each doing what it does
What if:   what_if=failure                      at which reward of an event another action overtakes
           rewards.failure=-20 resolve=true     the returns, and the optimal policy, under other rewards
Why so:    drivers=true drivers=crash by=15     which parts of the state the learned forecast of an event
                                                relies on; by default the event with most at stake
Simulator: rollouts=200 rollouts=0              the moment of a recorded episode is rolled out by default,
                                                as often as precision=0.06 (half a band) needs; 0 uses
                                                the learned predictor instead
Settings:  store=sqlite:///mlflow.db            the MLflow store
           out=outputs/answers/...              the folder for plots
           trust=[my_module]                    trusted modules, which define the environment, events or
                                                policy of the run
"""

LARGEST_REWARD = 1e15
MOST_SECONDS = 1e6


class QuestionError(ValueError):
    """A question that cannot be answered as asked."""


@dataclass(frozen=True)
class Question:
    """A question about a finished run."""

    run: str
    state: Any = None
    """None if not given: the start of an episode or, for an open question, a list of suggested moments."""
    action: Any = None
    foil: Any = None
    foil_state: Any = None
    against: str | None = None
    what_if: str | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    resolve: bool = False
    drivers: bool | str = False
    by: int | None = None
    rollouts: int | None = None
    precision: float = PRECISION
    store: str = "sqlite:///mlflow.db"
    out: str | None = None
    trust: Sequence[str] = ()
    seconds: float = 20.0
    """Time budget for finding moments worth asking about."""

    @property
    def open(self) -> bool:
        """Whether only the run is given, so that moments are suggested instead."""
        asked = (self.state, self.action, self.foil, self.foil_state, self.against, self.what_if)
        return all(each is None for each in asked) and not self.rewards and not self.resolve


TEXT = ("run", "against", "what_if", "store", "out")
"""Settings taken literally: a run id may look like a number."""


def parse(arguments: Sequence[str]) -> Question:
    """Parse `key=value`; fields of a state, and its place in an episode, may be given as keys."""
    typed = dict[str, str]()
    for argument in arguments:
        key, equals, value = argument.partition("=")
        if not equals:
            near = (
                f"; did you mean run={argument}?" if Path(argument).is_dir() else did_you_mean_run(argument)
            )
            raise QuestionError(f"expected key=value, got {shown(argument)}{near}")
        if key in typed:
            raise QuestionError(f"{key}= is duplicated")
        typed[key] = value
    for key in typed:
        whole = key.partition(".")[0]
        if whole != key and whole in typed:
            raise QuestionError(f"pass either {whole}= or {key}=, not both")
    texts = {key: typed[key] for key in TEXT if key in typed}
    given = _values([argument for argument in arguments if argument.partition("=")[0] not in TEXT])
    known = {f.name for f in fields(Question)}
    place = {key: given.pop(key) for key in list(given) if key not in known}
    if place and "state" in given:
        raise QuestionError(f"pass either state={shown(given['state'])} or {', '.join(place)}, not both")
    if not texts.get("run"):
        near = next(filter(None, (did_you_mean(key, known) for key in place)), "")
        raise QuestionError(f"run is missing: pass run=<MLflow run id, model URI or output folder>{near}")
    if empty := [key for key, value in texts.items() if not value]:
        raise QuestionError(f"{empty[0]}= is empty")
    if place:
        given["state"] = place
    return checked(Question(**{**given, **texts}))


def _values(arguments: Sequence[str]) -> dict[str, Any]:
    """The values of settings, parsed as YAML."""
    given = OmegaConf.create()
    for argument in arguments:
        try:
            given.merge_with_dotlist([argument])
        except (OmegaConfBaseException, YAMLError, RecursionError) as error:
            raise QuestionError(f"{shown(argument)} is not valid YAML: {brief(error)}") from error
    values = OmegaConf.to_container(given)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def checked(question: Question) -> Question:
    """Return the question if its settings have the right types; otherwise raise."""
    rewards, trust = question.rewards, question.trust
    if not isinstance(rewards, Mapping):
        raise QuestionError(
            f"rewards must be given by name, such as rewards.failure=-20, got {shown(rewards)}"
        )
    for name, reward in rewards.items():
        number(f"rewards.{name}", reward, -LARGEST_REWARD, LARGEST_REWARD)
    boolean("resolve", question.resolve)
    if not isinstance(question.drivers, bool | str):
        raise QuestionError(f"drivers must be true or the name of an event, got {shown(question.drivers)}")
    if question.by is not None:
        whole_number("by", question.by, at_least=0)
        if question.drivers is False:
            raise QuestionError(f"by={question.by} (a step) needs drivers=true or drivers=<event>")
    if question.rollouts is not None:
        whole_number("rollouts", question.rollouts, at_least=0)
    number("precision", question.precision, 0, 1, above_low=True)
    number("seconds", question.seconds, 0, MOST_SECONDS)
    trusted = [trust] if isinstance(trust, str) else trust
    if not isinstance(trusted, list | tuple) or not all(isinstance(module, str) for module in trusted):
        raise QuestionError(f"trust must be a list of modules, such as trust=[my_module], got {shown(trust)}")
    return replace(question, trust=tuple(trusted))
