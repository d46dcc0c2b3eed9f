"""A radio network based on mobile-env: moving users, cells that serve them, and handovers between cells."""

import math
from typing import Any

import numpy as np
from gymnasium import spaces
from mobile_env.core.channels import EPSILON, OkumuraHata
from mobile_env.handlers.central import MComCentralHandler
from mobile_env.scenarios.small import MComSmall

from tpd.core.types import Array, FloatArray
from tpd.envs.events.radio import CELLS, HANDOVER_COST, MEMORY, USERS
from tpd.envs.radio_drawing import draw_network

DECADES = 4.0
"""Orders of magnitude by which a signal may exceed a user's need before it is clipped to 1."""

NEVER = 10**9
"""Time limit passed to mobile-env, in steps: never reached, since the environment has its own."""


class PlainDistance(OkumuraHata):  # type: ignore[misc]
    """The same channel model without shapely, which takes three quarters of the time of a mobile-env step."""

    def power_loss(self, bs: Any, ue: Any) -> float:
        distance = math.hypot(int(bs.x) - int(ue.x), int(bs.y) - int(ue.y))
        height, frequency = math.log10(bs.height), math.log10(bs.frequency)
        antenna = 0.8 + (1.1 * frequency - 0.7) * ue.height - 1.56 * frequency
        loss = 69.55 - antenna + 26.16 * frequency - 13.82 * height
        return float(loss + (44.9 - 6.55 * height) * math.log10(distance + EPSILON))


class ServingCells(MComCentralHandler):  # type: ignore[misc]
    """The observation of each user: its cell, all signals, its utility and the cells that it left."""

    @classmethod
    def observation_space(cls, env: Any) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (USERS * (3 * CELLS + 1),), np.float32)

    @classmethod
    def observation(cls, env: Any) -> FloatArray:
        return np.concatenate([env.seen_of(user) for user in env.users.values()]).astype(np.float32)

    @classmethod
    def reward(cls, env: Any) -> float:
        """The mean utility of the users, minus the cost of handovers."""
        return float(MComCentralHandler.reward(env) - HANDOVER_COST * env.handovers)


class RadioNetwork(MComSmall):  # type: ignore[misc]
    """Five users and three cells; each user is served by at most one cell.

    An action has one part per user: stay, or be handed over to a cell, which fails out of its range.
    mobile-env itself allows several cells per user, charges nothing for handovers, and ignores the seed of
    `reset`. The destinations of the users are not observed.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        config = {"EP_MAX_TIME": NEVER, "arrival_params": {"ep_time": NEVER}}
        super().__init__({**config, "handler": ServingCells, "channel": PlainDistance}, render_mode)
        self.handovers = 0
        self._left: FloatArray = np.zeros((USERS, CELLS))
        """[user, cell]: 1 if the user has just left the cell, decaying with every step"""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Array, dict[str, Any]]:
        if seed is not None or self.movement.rng is None:
            streams = np.random.SeedSequence(seed).spawn(2)
            self.movement.rng, self.arrival.rng = map(np.random.default_rng, streams)
        self.handovers, self._left = 0, np.zeros((USERS, CELLS))
        seen, info = super().reset(seed=seed, options=options)
        return seen, info

    def step(self, actions: Array) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self.handovers = 0
        self._left = np.maximum(self._left - 1 / MEMORY, 0)
        stepped: tuple[Array, float, bool, bool, dict[str, Any]] = super().step(actions)
        return stepped

    def render(self) -> Array | None:
        """A map: cells with their ranges, users coloured by utility, and links to their serving cells."""
        if self.render_mode != "rgb_array":
            return None
        serving = {user: self._cell(user) for user in self.users.values()}
        return draw_network(list(self.stations.values()), serving, self.utilities)

    def apply_action(self, action: int, ue: Any) -> None:
        """Hand a user over to a cell in its range."""
        if action == self.NOOP_ACTION:
            return
        wanted, serving = self.stations[int(action) - 1], self._cell(ue)
        if serving is wanted or not self.check_connectivity(wanted, ue):
            return
        if serving is not None:
            self.connections[serving].remove(ue)
            self._left[ue.ue_id, serving.bs_id] = 1
            self.handovers += 1
        self.connections[wanted].add(ue)

    def seen_of(self, user: Any) -> FloatArray:
        """[3 * cell + 1]: the serving cell of a user, all signals, its utility, and the cells it left."""
        serving = self._cell(user)
        cell = [float(station is serving) for station in self.stations.values()]
        signals = [self.channel.snr(station, user) / user.snr_threshold for station in self.stations.values()]
        heard = np.clip(np.log10(signals) / DECADES, -1, 1)
        return np.concatenate([cell, heard, [self.utilities.get(user, -1.0)], self._left[user.ue_id]])

    def _cell(self, user: Any) -> Any:
        """The station that serves a user, or None."""
        return next((bs for bs in self.stations.values() if user in self.connections[bs]), None)
