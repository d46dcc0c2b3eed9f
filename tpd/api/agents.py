"""Loads agents, and turns anything a user may pass as an agent into a policy source (`Trainer`)."""

import copy
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gymnasium.envs.registration import EnvSpec
from omegaconf import DictConfig, OmegaConf

from tpd.api.environments import EnvLike, environment, with_known_names
from tpd.core.seeding import generator
from tpd.core.types import Array, Policy, Trainer
from tpd.envs import Environment
from tpd.policies.pretrained import GivenPolicy
from tpd.run.configs import group
from tpd.run.parts import make_env, make_trainer

log = logging.getLogger(__name__)

SB3_MODEL = "stable_baselines3.common.base_class"
MONITOR = "Monitor"
"""The wrapper that Stable-Baselines3 adds to every environment; it changes no step."""
NOT_LOADED = "agent: load it first with tpd.load_agent({!r}, env=...)"


@dataclass(frozen=True)
class Agent:
    """A loaded agent and its environment."""

    trainer: Trainer
    env: Environment

    @property
    def policy(self) -> Policy:
        """The policy of the agent."""
        return self.trainer.policy

    def __repr__(self) -> str:
        return f"<Agent for {self.env.id}>"


AgentLike = Agent | Policy | Callable[[Array], Array] | Any
"""A loaded agent, a live SB3 model, a policy, or a function of observations [batch, ...] to actions."""


def load_agent(
    path: str | Path,
    env: EnvLike | None = None,
    *,
    vec_normalize: Any = None,
    algorithm: str | None = None,
    deterministic: bool = True,
    trust: bool = False,
    expected_return: float | None = None,
) -> Agent:
    """Load a Stable-Baselines3 agent from its zip or an RL Zoo folder, without running any pickle in it.

    env: an id, a spec or a function that makes the environment; a Zoo folder names its own.
    vec_normalize: the file with the statistics of VecNormalize, or the live wrapper; False if there are none.
    algorithm: the name of the algorithm; read from the zip by default.
    deterministic: take the most likely or best action; False: sample or explore as in training.
    trust: unpickle the contents of the zip, as Stable-Baselines3 itself does.
    expected_return: the mean return that the agent should reach, if the files do not say it.

    >>> import tpd
    >>> tpd.load_agent("missing.zip", env="CartPole-v1")
    Traceback (most recent call last):
    tpd.run.parts.ConfigError: policy: missing.zip: there is no such file
    """
    zipped = Path(path).expanduser()
    if zipped.is_dir() and (env is None or isinstance(env, str)):
        made = make_env(DictConfig({"env": _without("env", "zoo", "path", "id")}), path=str(zipped), id=env)
        made = with_known_names(made)
    elif env is None:
        if not zipped.exists():
            raise FileNotFoundError(f"policy: {zipped}: there is no such file or folder")
        raise ValueError("env: pass the environment of the agent, as an id or a function that creates it")
    else:
        made = environment(env)
    given = {
        "path": str(zipped),
        "algorithm": algorithm,
        "vec_normalize": str(vec_normalize) if isinstance(vec_normalize, Path) else vec_normalize,
        "deterministic": deterministic,
        "trust": trust,
        "expected_return": expected_return,
    }
    config = DictConfig({"policy": _without("policy", "sb3_zip", *given)})
    trainer = make_trainer(config, made, generator(0, "policy"), **given)
    return Agent(trainer, made)


def environment_of(agent: AgentLike) -> EnvLike:
    """The spec of a live model's environment; raises a ValueError if it has none."""
    if isinstance(agent, str | Path):
        raise TypeError(NOT_LOADED.format(str(agent)))
    model: Any = agent
    envs = model.get_env() if _is_sb3_model(agent) else None
    spec: EnvSpec | None = None if envs is None else envs.get_attr("spec")[0]
    if spec is None:
        raise ValueError("env: pass the environment, as an id or a function that creates it")
    plain = copy.copy(spec)
    plain.additional_wrappers = tuple(w for w in spec.additional_wrappers if w.name != MONITOR)
    return plain


def _is_sb3_model(agent: AgentLike) -> bool:
    return any(kind.__module__ == SB3_MODEL for kind in type(agent).__mro__)


def trainer_of(agent: AgentLike, env: Environment, deterministic: bool, vec_normalize: Any) -> Trainer:
    """The policy source for an agent given in any supported form."""
    if isinstance(agent, Agent):
        return agent.trainer
    if isinstance(agent, str | Path):
        raise TypeError(NOT_LOADED.format(str(agent)))
    rng = generator(0, "policy")
    if _is_sb3_model(agent):
        given = {"model": agent, "vec_normalize": vec_normalize, "deterministic": deterministic}
        config = _without("policy", "sb3_model", *given)
        return make_trainer(DictConfig({"policy": config}), env, rng, **given)
    if all(hasattr(agent, name) for name in ("action", "sample", "discount", "action_values")):
        policy: Any = agent
        return GivenPolicy(policy)
    if callable(agent):
        config = _without("policy", "function", "function")
        return make_trainer(DictConfig({"policy": config}), env, rng, function=agent)
    raise TypeError(
        "agent: expected a result of tpd.load_agent, a Stable-Baselines3 model, a policy or a function of "
        f"observations, got {type(agent).__name__}"
    )


def _without(name: str, option: str, *keys: str) -> DictConfig:
    """An option of a config group without these keys, given from Python; nothing is interpolated."""
    plain = OmegaConf.to_container(group(name, option), resolve=False)
    assert isinstance(plain, dict)
    return DictConfig({key: value for key, value in plain.items() if key not in keys})


def explained_environment(agent: AgentLike, env: EnvLike | None) -> Environment:
    """The given environment, or else that of the agent; refused if the agent was loaded for another one."""
    if isinstance(agent, Agent) and (env is None or env == agent.env.id):
        return agent.env
    made = environment(environment_of(agent) if env is None else env)
    if isinstance(agent, Agent):
        known, given = agent.env.registered_id, made.registered_id
        said = f"the agent was loaded for {known}, but is explained in {given}"
        check_same_world(known, given, said, "to explain it there, load it for that environment")
    return made


def check_same_world(known: str | None, given: str | None, said: str, remedy: str) -> None:
    """Refuse an environment with another id than the known one; another version only gives a warning."""
    if known is None or given is None or known == given:
        return
    if re.sub(r"-v\d+$", "", known) != re.sub(r"-v\d+$", "", given):
        raise ValueError(f"env: {said}, which is another environment; {remedy}")
    log.warning(said)
