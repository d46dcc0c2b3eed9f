"""What can be asked of a finished run, and how it is typed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from tpd.predictors.simulation import PRECISION
from tpd.sources.named_states import START

HELP = """tpd-explain answers why an agent did what it did, from a finished run.

  tpd-explain run=<MLflow run id, model URI or output folder> [key=value ...]

Where:     row=2 col=0 fuel=6 passenger=false   the fields of a state, where the environment has them
           state=417   state=[0.1, 0, 0.02, 0]  its number, or what is observed
           episode=7 step=42                    a step of a recorded episode; the start if nothing is said
What:      action=south foil=east               by name or number; by default the agent's own and the
                                                best of the others
Compare:   foil_state={row: 2, ...}             with another state, instead of another action
           against=<another run>                with another policy or seed, each doing what it does
What if:   what_if=failure                      at which reward of an event another action overtakes
           rewards.failure=-20 resolve=true     the returns, and the optimal policy, under other rewards
Simulator: rollouts=200 rollouts=0              the moment of a recorded episode is rolled out by default,
                                                as often as precision=0.06 (half a band) needs; 0 does
                                                without, and tells what was learned
Settings:  store=sqlite:///mlflow.db            the MLflow store
           out=outputs/answers/...              the folder for plots
           trust=[my_module]                    modules that the environment, events or policy of the run
                                                are of, if you trust them
"""


class QuestionError(ValueError):
    """A question that cannot be answered as it was put."""


@dataclass(frozen=True)
class Question:
    """What is asked of which run."""

    run: str
    state: Any = START
    action: Any = None
    foil: Any = None
    foil_state: Any = None
    against: str | None = None
    what_if: str | None = None
    rewards: Mapping[str, float] = field(default_factory=dict)
    resolve: bool = False
    rollouts: int | None = None
    precision: float = PRECISION
    store: str = "sqlite:///mlflow.db"
    out: str | None = None
    trust: Sequence[str] = ()


def parse(arguments: Sequence[str]) -> Question:
    """Read `key=value`; the fields of a state, and the place in an episode, may be given as keys."""
    try:
        given = OmegaConf.to_container(OmegaConf.from_dotlist(list(arguments)))
    except OmegaConfBaseException as error:
        raise QuestionError(f"settings are given as key=value: {error}") from error
    assert isinstance(given, dict)
    for argument in arguments:
        if "=" not in argument:
            raise QuestionError(f"settings are given as key=value, got {argument!r}")
    known = {f.name for f in fields(Question)}
    place = {str(key): given.pop(key) for key in list(given) if key not in known}
    if place and "state" in given:
        raise QuestionError(f"the state is given twice: state={given['state']} and {', '.join(place)}")
    if "run" not in given:
        raise QuestionError("say of which run: run=<MLflow run id, model URI or output folder>")
    if place:
        given["state"] = place
    return Question(**{str(key): value for key, value in given.items()})
