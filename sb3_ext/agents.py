"""Policy sources: an agent that somebody trained, and one that is trained here."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import torch
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv

from sb3_ext.callback import TransitionCallback
from sb3_ext.loading import load_agent, seems_normalised
from sb3_ext.logger import logger
from sb3_ext.normalization import load_normalization
from sb3_ext.policies import as_policy
from tpd.checks import boolean, whole_number
from tpd.envs import Environment
from tpd.policies.untrained import Untrained
from tpd.seeding import reset_seed
from tpd.types import RecurrentPolicy, Report, State, TransitionsCallback, no_report

log = logging.getLogger(__name__)

WEIGHT, FIGURES = "weight.", ("num_timesteps", "_n_updates", "exploration_rate")


class LoadedAgent(Untrained):
    """An agent from a zip, which is not trained any further.

    vec_normalize: the statistics of VecNormalize that belong to it, applied as they are.
    trust: run the pickles of the zip, as SB3 itself does, and of statistics that cannot be read else.
    """

    def __init__(
        self,
        env: Environment,
        rng: np.random.Generator,
        *,
        path: str | None,
        algorithm: str | None,
        vec_normalize: str | None,
        deterministic: bool,
        trust: bool,
    ) -> None:
        if path is None:
            raise ValueError("name the zip of the agent: policy.path=agent.zip")
        zipped = Path(path).expanduser()
        model = load_agent(zipped, env.make(), algorithm=algorithm, trust=trust)
        normalization = None
        if vec_normalize is None and seems_normalised(zipped):
            log.warning(
                "%s seems to be trained under VecNormalize: name its statistics by policy.vec_normalize, "
                "or what is explained is an agent that sees other observations than it learned from",
                zipped,
            )
        if vec_normalize is not None:
            file = Path(vec_normalize).expanduser()
            try:
                normalization = load_normalization(file, env.observation_space)
            except ValueError:
                if not trust:
                    raise
                normalization = load_normalization(file, env.observation_space, trust=True)
        self.policy = as_policy(
            model,
            deterministic=boolean("deterministic", deterministic),
            normalization=normalization,
            mask=env.mask if env.discrete else None,
        )


class TrainedAgent:
    """An agent trained by one of SB3's algorithms.

    algorithm: makes the model, given `env`, `seed` and `device`.
    """

    def __init__(
        self,
        env: Environment,
        rng: np.random.Generator,
        *,
        algorithm: Callable[..., BaseAlgorithm],
        steps: int,
        num_envs: int,
        deterministic: bool,
    ) -> None:
        self.steps = whole_number("steps", steps, at_least=0)
        copies = whole_number("num_envs", num_envs, at_least=1)
        envs = DummyVecEnv([lambda: Monitor(env.make())] * copies)
        self.model = algorithm(env=envs, seed=reset_seed(rng), device="cpu")
        if isinstance(self.model, MaskablePPO) and not is_masking_supported(envs):
            raise ValueError(f"{env.id} has no method action_masks, which MaskablePPO is trained with")
        self.policy = as_policy(
            self.model,
            deterministic=boolean("deterministic", deterministic),
            mask=env.mask if env.discrete else None,
        )

    def train(
        self,
        callbacks: Iterable[TransitionsCallback] = (),
        info_keys: Sequence[str] = (),
        report: Report = no_report,
    ) -> None:
        """Learn, showing the transitions to the callbacks, and SB3's own figures to whoever asks."""
        memory = self.policy if isinstance(self.policy, RecurrentPolicy) else None
        self.model.set_logger(logger(report))
        watching = TransitionCallback(tuple(callbacks), info_keys=info_keys, memory=memory)
        if self.steps:
            self.model.learn(self.steps, callback=watching)

    def state(self) -> State:
        """What the trained agent acts by: its weights, and how much it explores."""
        weights = {f"{WEIGHT}{name}": w.numpy() for name, w in self.model.policy.state_dict().items()}
        figures = {name: np.array(getattr(self.model, name)) for name in FIGURES if hasattr(self.model, name)}
        return weights | figures

    def restore(self, state: State) -> None:
        """Act as the agent that was trained."""
        weights = {name.removeprefix(WEIGHT): a for name, a in state.items() if name.startswith(WEIGHT)}
        self.model.policy.load_state_dict({name: torch.from_numpy(a) for name, a in weights.items()})
        for name in FIGURES:
            if name in state:
                setattr(self.model, name, state[name].item())
