"""Recovers the raw observations and rewards of training environments, before SB3 preprocesses them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from stable_baselines3.common.vec_env import (
    VecCheckNan,
    VecEnv,
    VecMonitor,
    VecNormalize,
    VecTransposeImage,
    VecVideoRecorder,
    unwrap_vec_normalize,
)

from tpd.core.observations import pack
from tpd.core.types import Array, FloatArray, RecurrentPolicy, Transitions, concatenate

Infos = Sequence[Mapping[str, Any]]
OBSERVATIONS_PASS = (VecTransposeImage, VecNormalize, VecMonitor, VecCheckNan, VecVideoRecorder)


class RawValues:
    """Raw observations and rewards of the environments, before SB3 preprocesses them.

    VecNormalize clips the values that it normalises, and passes on the last observation of an episode only in
    that form; so raw values are recorded before they enter it. Images are transposed back to the layout of
    the environment.
    """

    def __init__(self, env: VecEnv) -> None:
        self._normalize: VecNormalize | None = None
        self._transpose: VecTransposeImage | None = None
        self._noted: Infos = ()
        outer = env
        while self._normalize is None and isinstance(outer, OBSERVATIONS_PASS):
            if isinstance(outer, VecNormalize):
                self._normalize, self._transpose = outer, None
            elif isinstance(outer, VecTransposeImage) and not outer.skip:
                self._transpose = outer
            outer = outer.venv
        if unwrap_vec_normalize(outer) is not None:
            raise ValueError(
                f"VecNormalize is wrapped in {type(self._normalize or outer).__name__}, which hides the "
                "original observations: make VecNormalize the outermost wrapper, and use only one"
            )
        if self._normalize is not None:
            self._listen(outer)

    def _listen(self, inner: VecEnv) -> None:
        step_wait = inner.step_wait

        def noting() -> Any:
            result = step_wait()
            self._noted = [dict(info) for info in result[3]]  # VecNormalize overwrites entries
            return result

        self._inner = inner
        vars(inner)["step_wait"] = noting  # another wrapper would break SB3's comparison of wrappers

    def release(self) -> None:
        """Restore the environments."""
        if self._normalize is not None:
            vars(self._inner).pop("step_wait", None)

    def observations(self, given: Any) -> Array:
        """[env, ...]: a copy of the latest observations, which SB3 shows as `given`."""
        if self._normalize is not None:
            given = self._normalize.get_original_obs()
        return np.array(pack(self._turned(given)))

    def rewards(self, given: FloatArray) -> FloatArray:
        """[env]: a copy of the latest rewards, which SB3 shows as `given`."""
        if self._normalize is not None:
            given = self._normalize.get_original_reward()
        return np.array(given, dtype=np.float64)

    def next_observations(self, first: Array, ended: Sequence[int], infos: Infos) -> Array:
        """[env, ...]: next observations; of environments whose episode ended, its last one, not `first`."""
        following = first.copy() if ended else first
        for env in ended:
            info = infos[env] if self._normalize is None else self._noted[env]
            if "terminal_observation" not in info:
                raise KeyError(f"the vector env gives no info['terminal_observation'], only {sorted(info)}")
            last = info["terminal_observation"]
            if isinstance(last, Mapping):
                assert first.dtype.names is not None
                last = {key: np.asarray(last[key])[None] for key in first.dtype.names}
            else:
                last = np.asarray(last)[None]
            following[env] = pack(self._turned(last))[0]
        return following

    def _turned(self, given: Any) -> Any:
        if self._transpose is None:
            return given
        if isinstance(given, Mapping):
            images = self._transpose.image_space_keys
            return {k: np.moveaxis(v, 1, -1) if k in images else v for k, v in given.items()}
        return np.moveaxis(given, 1, -1)


class HiddenStates:
    """Tracks the hidden state of a recurrent policy along the steps of its environments.

    If training is resumed, the hidden state of an environment is known only from its next episode on; earlier
    steps are left out.
    """

    def __init__(self, policy: RecurrentPolicy, num_envs: int, *, known: bool) -> None:
        self._policy = policy
        self._hidden = policy.start(num_envs)
        self._known = np.full(num_envs, known)

    def carry_all(self, steps: Transitions, num_envs: int) -> Transitions:
        """The next steps, each of all environments."""
        each = (steps[t : t + num_envs] for t in range(0, len(steps), num_envs))
        return concatenate([self.carry(step) for step in each])

    def carry(self, step: Transitions) -> Transitions:
        """The next step of all environments, with the hidden state appended to the observations."""
        if step.observation.ndim != 2:
            raise TypeError(
                "recurrent agents need vector observations, "
                f"got shape {step.observation.shape[1:]} and dtype {step.observation.dtype}"
            )
        before = np.concatenate([step.observation, self._hidden], axis=1)
        advanced = self._policy.advance(before)
        after = np.concatenate([step.next_observation, advanced], axis=1)
        carried = replace(step, observation=before, next_observation=after)[self._known]
        ended = step.terminated | step.truncated
        self._hidden = np.where(ended[:, None], self._policy.start(len(step)), advanced)
        self._known = self._known | ended
        return carried
