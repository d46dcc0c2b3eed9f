"""FuelTaxi as a Gymnasium environment and as a vector environment."""

from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
from gymnasium.envs.toy_text.utils import categorical_sample

from tpd.core.types import Array, BoolArray, IntArray
from tpd.envs.fuel_taxi import drawing, rules
from tpd.envs.tabular import TabularVectorEnv

EVENT_OBJECTS = np.array(rules.EVENT_NAMES, dtype=object)


class FuelTaxiEnv(gym.Env[Any, Any]):
    """One taxi: pick up the passenger, drive to the destination, and do not run out of fuel."""

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 4}
    action_names: ClassVar[tuple[str, ...]] = rules.ACTION_NAMES
    map_layout: ClassVar[dict[str, str]] = {
        "across": "col",
        "down": "row",
        "panels": "fuel",
        "pages": "passenger",
    }
    state_fields: ClassVar[dict[str, tuple[int | bool, ...]]] = {
        "row": tuple(range(rules.SIZE)),
        "col": tuple(range(rules.SIZE)),
        "fuel": tuple(range(rules.FULL_TANK + 1)),
        "passenger": (False, True),
    }
    encode = staticmethod(rules.encode)
    describe_state = staticmethod(rules.describe)

    def __init__(self, render_mode: str | None = None) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(
                f"render_mode must be one of {self.metadata['render_modes']}, got {render_mode!r}"
            )
        self.render_mode = render_mode
        self.observation_space = gym.spaces.Discrete(rules.NUM_STATES)
        self.action_space = gym.spaces.Discrete(len(rules.Action))
        self.P = rules.dynamics().table
        self.initial_state_distrib = rules.dynamics().model.start
        self.s = int(np.argmax(self.initial_state_distrib))
        self._last_event: rules.Event | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[int, dict[str, Any]]:
        """Start an episode; `options={"state": index}` sets the initial state."""
        super().reset(seed=seed)
        if options and "state" in options:
            self.s = int(options["state"])
        else:
            self.s = int(categorical_sample(self.initial_state_distrib, self.np_random))
        self._last_event = None
        return self.s, {"prob": 1.0, "action_mask": self.action_mask(self.s)}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Take one step; `info["event"]` names what happened."""
        outcomes = self.P[self.s][int(action)]
        branch = int(categorical_sample([p for p, *_ in outcomes], self.np_random))
        self._last_event = rules.Event(rules.dynamics().events[self.s, action, branch])
        probability, self.s, reward, terminated = outcomes[branch]
        info = {
            "prob": probability,
            "action_mask": self.action_mask(self.s),
            "event": rules.EVENT_NAMES[self._last_event],
        }
        return self.s, reward, terminated, False, info

    def action_mask(self, state: int) -> Array:
        """[num_actions]: 1 if the action is valid in that state; all 1 if none is valid."""
        return np.asarray(rules.dynamics().model.mask[state], dtype=np.int8)

    def action_masks(self) -> BoolArray:
        """[num_actions]: which actions are valid now."""
        return self.action_mask(self.s).astype(np.bool_)

    def render(self) -> Any:
        """The current state, as text or as a picture."""
        state = rules.decode(self.s)
        delivered = self._last_event == rules.Event.DROPOFF
        if self.render_mode == "ansi":
            return drawing.text(state, delivered)
        if self.render_mode == "rgb_array":
            return drawing.picture(state, delivered)
        gym.logger.warn("render() needs a render_mode: gym.make('FuelTaxi-v0', render_mode='ansi')")
        return None


class FuelTaxiVectorEnv(TabularVectorEnv):
    """Many taxis at once."""

    def __init__(
        self, num_envs: int = 1, max_episode_steps: int | None = None, render_mode: str | None = None
    ) -> None:
        if render_mode is not None:
            raise ValueError("the vector env cannot be rendered: use gymnasium.make for pictures")
        super().__init__(rules.dynamics().model, num_envs, max_episode_steps)

    def _step_info(
        self, state: IntArray, actions: IntArray, branch: IntArray, reset: BoolArray
    ) -> dict[str, Any]:
        events = EVENT_OBJECTS[rules.dynamics().events[state, actions, branch]]
        events[reset] = None
        return {"event": events}
