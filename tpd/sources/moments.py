"""A moment of an episode: what the simulator can be asked about."""

from dataclasses import dataclass

import gymnasium as gym
import numpy as np

from tpd.core.observations import batch
from tpd.core.types import Array, BoolArray
from tpd.envs import Environment


@dataclass(frozen=True, eq=False)
class Moment:
    """A moment of an episode, known by the way that leads there.

    >>> import tpd
    >>> moment = tpd.Moment(seed=3, actions=[0, 1], observation=[0.0, 0.1, 0.0, 0.2])
    >>> moment
    <Moment: episode of seed 3, step 2>
    """

    seed: int
    """The seed of the reset."""
    actions: Array
    """[time, ...]: the actions since then"""
    observation: Array
    """[...]: what the policy sees now, with its hidden state in the last columns if it has one"""
    mask: BoolArray | None = None
    """[num_actions]: the valid actions now; None where actions are not numbered"""
    taken: Array | None = None
    """[...]: the action that the policy then took, where that is known"""

    @property
    def step(self) -> int:
        """How many steps of the episode lie behind it."""
        return len(self.actions)

    @property
    def name(self) -> str:
        """The moment in words."""
        return f"episode of seed {self.seed}, step {self.step}"

    def __repr__(self) -> str:
        return f"<Moment: {self.name}>"

    def __post_init__(self) -> None:
        for name in ("actions", "observation"):
            object.__setattr__(self, name, np.asarray(getattr(self, name)))

    def shows(self, space: gym.Space[object], observation: object) -> bool:
        """Whether an environment that shows this observation may stand here."""
        shown = batch(space, [observation])[0]
        seen = self.observation
        if seen.dtype.names is None and seen.ndim == 1 and shown.ndim == 1:
            seen = seen[: len(shown)]  # the rest is the hidden state
        return bool(np.array_equal(shown, seen))

    def valid(self, env: Environment) -> BoolArray:
        """[num_actions]: the actions that may be taken."""
        return env.mask(self.observation[None])[0] if self.mask is None else self.mask
