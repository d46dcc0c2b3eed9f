"""A radio network of mobile-env: users that move, cells that serve them, and handovers between these."""

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
"""Powers of ten by which a signal may exceed what a user needs, to be observed as 1."""


NEVER = 10**9
"""Steps after which mobile-env itself ends an episode: the time limit of the environment does."""


class PlainDistance(OkumuraHata):  # type: ignore[misc]
    """The same channel without shapely, which takes three quarters of a step of mobile-env."""

    def power_loss(self, bs: Any, ue: Any) -> float:
        distance = math.hypot(int(bs.x) - int(ue.x), int(bs.y) - int(ue.y))
        height, frequency = math.log10(bs.height), math.log10(bs.frequency)
        antenna = 0.8 + (1.1 * frequency - 0.7) * ue.height - 1.56 * frequency
        loss = 69.55 - antenna + 26.16 * frequency - 13.82 * height
        return float(loss + (44.9 - 6.55 * height) * math.log10(distance + EPSILON))


class ServingCells(MComCentralHandler):  # type: ignore[misc]
    """What the operator sees of each user: its cell, all signals, its utility and the cells that it left."""

    @classmethod
    def observation_space(cls, env: Any) -> spaces.Box:
        return spaces.Box(-1.0, 1.0, (USERS * (3 * CELLS + 1),), np.float32)

    @classmethod
    def observation(cls, env: Any) -> FloatArray:
        return np.concatenate([env.seen_of(user) for user in env.users.values()]).astype(np.float32)

    @classmethod
    def reward(cls, env: Any) -> float:
        """The mean utility of the users, without the cost of handovers."""
        return float(MComCentralHandler.reward(env) - HANDOVER_COST * env.handovers)


class RadioNetwork(MComSmall):  # type: ignore[misc]
    """Five users and three cells, one of which serves each user at a time.

    An action has one part for each user: stay, or be handed over to a cell, which fails out of its range.
    mobile-env itself lets a user have several cells, charges nothing for changes, and drops the seed of
    `reset`. Where a user is going to is not observed.
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}

    def __init__(self, render_mode: str | None = None) -> None:
        config = {"EP_MAX_TIME": NEVER, "arrival_params": {"ep_time": NEVER}}
        super().__init__({**config, "handler": ServingCells, "channel": PlainDistance}, render_mode)
        self.handovers = 0
        self._left: FloatArray = np.zeros((USERS, CELLS))
        """[user, cell]: 1 when it has just left the cell, and less with every step"""

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
        """A map: cells with their ranges, users by their utility, and which cell serves whom."""
        if self.render_mode != "rgb_array":
            return None
        serving = {user: self._cell(user) for user in self.users.values()}
        return draw_network(list(self.stations.values()), serving, self.utilities)

    def apply_action(self, action: int, ue: Any) -> None:
        """Hand a user over to a cell that it can hear."""
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
        """[3 * cell + 1]: the cell that serves a user, the signals of all, its utility, the cells it left."""
        serving = self._cell(user)
        cell = [float(station is serving) for station in self.stations.values()]
        signals = [self.channel.snr(station, user) / user.snr_threshold for station in self.stations.values()]
        heard = np.clip(np.log10(signals) / DECADES, -1, 1)
        utility = self.utilities.get(user, -1.0)
        return np.concatenate([cell, heard, [utility], self._left[user.ue_id]])

    def _cell(self, user: Any) -> Any:
        """The station that serves a user, if one does."""
        return next((bs for bs in self.stations.values() if user in self.connections[bs]), None)
