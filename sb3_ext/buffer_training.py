"""Training of the explainer from a replay buffer that SB3 has saved: `training=buffer`."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from sb3_ext.buffers import count, load_replay_buffer, replay_buffer_batches
from tpd.core.types import Handlers, Policy, RecurrentPolicy, Rng, Stage, Transitions
from tpd.envs import Environment
from tpd.envs.spaces import check_members
from tpd.guards.settings import boolean
from tpd.run.training import Training
from tpd.sources.shards import in_stages, learn_in_turn


class BufferTraining(Training):
    """Takes the transitions from a replay buffer that an off-policy agent of SB3 has saved.

    path: the file that `model.save_replay_buffer` wrote; it is read without running any of it.
    time_limits: False says that the environment has none, for buffers that do not tell them from ends.
    """

    def __init__(self, *, path: str | None, time_limits: bool = True) -> None:
        if path is None:
            raise ValueError("set the file of the replay buffer: training.path=…")
        self.source = self._path = Path(path).expanduser()
        self._time_limits = boolean("time_limits", time_limits)
        self._buffer = load_replay_buffer(self._path)
        self.alongside, self.dataset = False, None
        self.steps = count(self._buffer)
        if not self.steps:
            raise ValueError(f"{self._path} has no transitions: save the replay buffer after training")

    def check(self, env: Environment, info_keys: Sequence[str], run: str = "") -> None:
        """Refuse a buffer of something else, or without what the outcomes read."""
        for batch in self._batches(env, info_keys):
            for name, space in (("observation", env.observation_space), ("action", env.action_space)):
                check_members(f"{name} of {self._path.name}", getattr(batch, name), space)

    def _batches(self, env: Environment, info_keys: Sequence[str]) -> Iterator[Transitions]:
        return replay_buffer_batches(
            self._buffer,
            info_keys=info_keys,
            time_limits=self._time_limits,
            observation_space=env.observation_space,
            action_space=env.action_space,
        )

    def _learning_stages(
        self, env: Environment, policy: Policy, rng: Rng, learning: Handlers, info_keys: Sequence[str]
    ) -> list[Stage]:
        """Read, and learn from it."""
        if isinstance(policy, RecurrentPolicy):
            raise ValueError(
                "a recurrent agent cannot be explained from a replay buffer, which does not store hidden "
                "states: use training=agent"
            )
        return in_stages(partial(learn_in_turn, learning), [partial(self._batches, env, info_keys)])
