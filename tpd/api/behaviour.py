"""Foils that are more than one action: a behaviour for some steps, or another policy for good."""

from dataclasses import dataclass
from typing import Any

from tpd.api.agents import Agent, AgentLike, trainer_of
from tpd.envs import Environment
from tpd.guards.settings import whole_number
from tpd.policies.followed import MOST_STEPS, Followed, in_turn


@dataclass(frozen=True)
class Behaviour:
    """What the agent might have done instead, for some steps or for good.

    agent: what `tpd.load_agent` gives, a live Stable-Baselines3 model, a policy, a function of observations
        [batch, ...] to actions, or a list of actions that are taken one after the other.
    steps: for so many steps, after which the agent that is explained goes on; None is for good.
    name: what sentences call it; the name of the function if left out.

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
            raise ValueError("steps: a list of actions has as many steps as actions")

    def followed(self, env: Environment) -> Followed:
        """The same as policies for this environment."""
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
    """A foil as it is compared: behaviours as policies, actions as they were given."""
    if isinstance(foil, Behaviour):
        return foil.followed(env)
    if isinstance(foil, Agent) or (callable(foil) and not isinstance(foil, type)):
        raise TypeError("foil: a function or an agent is followed as tpd.Behaviour(it, steps=10)")
    return foil


def _name_of(agent: AgentLike) -> str:
    """What sentences call it, where nobody gave it a name."""
    name = getattr(agent, "__name__", "<lambda>")
    return "the other policy" if name == "<lambda>" else str(name).replace("_", " ")
