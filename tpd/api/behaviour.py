"""Foils that are more than one action: another behaviour for some steps, or another policy for good."""

from dataclasses import dataclass
from typing import Any

from tpd.api.agents import Agent, AgentLike, trainer_of
from tpd.envs import Environment
from tpd.guards.settings import whole_number
from tpd.policies.followed import MOST_STEPS, Followed, in_turn


@dataclass(frozen=True)
class Behaviour:
    """A behaviour that the agent might have followed instead, used as a foil.

    agent: the result of `tpd.load_agent`, a live Stable-Baselines3 model, a policy, a function of
        observations [batch, ...] to actions, or a list of actions to take in turn.
    steps: follow it for this many steps, then the explained agent again; None: to the end.
    name: its name in sentences; the name of the function by default.

    >>> import tpd, numpy as np
    >>> def keep_left(observations):
    ...     return np.zeros(len(observations), dtype=int)
    >>> explainer = tpd.Explainer(lambda observations: observations[:, 2] > 0, env="CartPole-v1")
    >>> moment = explainer.play(seeds=[0])[0][0]
    >>> explainer.why(moment, foil=tpd.Behaviour(keep_left, steps=3)).compared
    'push left against keep left for 3 steps'
    """

    agent: AgentLike
    steps: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            whole_number("steps", self.steps, at_least=1, at_most=MOST_STEPS)
        if isinstance(self.agent, list | tuple) and self.steps is not None:
            raise ValueError("steps: omit steps= for a list of actions, which lasts one step per action")

    def followed(self, env: Environment) -> Followed:
        """The behaviour as policies for this environment."""
        if isinstance(self.agent, list | tuple):
            listed = in_turn(env, self.agent)
            return listed if self.name is None else Followed(self.name, listed.policies)
        policy = trainer_of(self.agent, env, True, None).policy
        name = self.name or _name_of(self.agent)
        if self.steps is None:
            return Followed(name, (policy,), for_good=True)
        steps = "1 step" if self.steps == 1 else f"{self.steps} steps"
        return Followed(f"{name} for {steps}", (policy,) * self.steps)


def foil_of(foil: Any, env: Environment) -> Any:
    """Convert a behaviour to policies; return an action unchanged."""
    if isinstance(foil, Behaviour):
        return foil.followed(env)
    if isinstance(foil, Agent) or (callable(foil) and not isinstance(foil, type)):
        raise TypeError("foil: pass a function or an agent as tpd.Behaviour(agent, steps=10)")
    return foil


def _name_of(agent: AgentLike) -> str:
    """The default name of a behaviour in sentences."""
    name = getattr(agent, "__name__", "<lambda>")
    return "the other policy" if name == "<lambda>" else str(name).replace("_", " ")
