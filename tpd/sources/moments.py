"""`Moment`: a step of an episode that the simulator can return to."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from tpd.core.observations import batch
from tpd.core.types import Array, BoolArray
from tpd.envs import Environment


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of an episode, defined by the seed and the actions that lead to it.

    >>> import tpd
    >>> moment = tpd.Moment(seed=3, actions=[0, 1], observation=[0.0, 0.1, 0.0, 0.2])
    >>> moment
    <Moment: episode of seed 3, step 2>
    """

    seed: int
    """The seed of the reset."""
    actions: Array
    """[time, ...]: the actions since the reset"""
    observation: Array
    """[...]: the current observation, followed by the hidden state if the policy is recurrent"""
    mask: BoolArray | None = None
    """[num_actions]: the valid actions now; None if actions are not discrete"""
    taken: Array | None = None
    """[...]: the action that the policy took here, if known"""

    @property
    def step(self) -> int:
        """Number of steps taken before this moment."""
        return len(self.actions)

    @property
    def name(self) -> str:
        """The moment as text."""
        return f"episode of seed {self.seed}, step {self.step}"

    def __repr__(self) -> str:
        return f"<Moment: {self.name}>"

    def __post_init__(self) -> None:
        for name in ("actions", "observation"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))

    def shows(self, space: gym.Space[object], observation: object) -> bool:
        """Whether this observation matches the one of the moment."""
        shown = batch(space, [observation])[0]
        seen = self.observation
        if seen.dtype.names is None and seen.ndim == 1 and shown.ndim == 1:
            seen = seen[: len(shown)]  # the rest is the hidden state
        return bool(np.array_equal(shown, seen))

    def valid(self, env: Environment) -> BoolArray:
        """[num_actions]: which actions are valid."""
        return env.mask(self.observation[None])[0] if self.mask is None else self.mask
