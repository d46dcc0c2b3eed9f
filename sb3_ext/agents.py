"""Policy sources for Stable-Baselines3: an agent from a zip, a live model, and an agent trained here."""

import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Literal

from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

from sb3_ext.callback import TransitionCallback
from sb3_ext.expected_returns import expected_of_model
from sb3_ext.expected_returns import expected_return as find_expected_return
from sb3_ext.live_models import GivenStatistics, check_same_world, find_statistics
from sb3_ext.loading import load_agent, seems_normalised, zip_file
from sb3_ext.logger import logger
from sb3_ext.normalization import ObservationNormalization, frozen
from sb3_ext.policies import policy_in
from sb3_ext.stages import begin, indivisible, progress_of, restore, state
from sb3_ext.zoo import zoo_agent
from tpd.core.seeding import reset_seed
from tpd.core.types import MetricsCallback, RecurrentPolicy, Rng, State, TransitionsHandler, no_metrics
from tpd.envs import Environment
from tpd.guards.files import CheckedArrays
from tpd.guards.settings import whole_number
from tpd.policies.pretrained import Pretrained
from tpd.sources.stepping import CheckedEnv

log = logging.getLogger(__name__)


class LoadedAgent(Pretrained):
    """An agent from a zip, which is not trained any further.

    path: the zip, or the folder of an RL Zoo agent, which also has its statistics and its environment.
    vec_normalize: the file with its VecNormalize statistics, or the wrapper itself, applied without further
        updates; False for none, if the zip shows that it was trained with some.
    trust: unpickle the zip, as SB3 itself does, and statistics that cannot be read otherwise.
    expected_return: the mean return that it should reach; None: look for it in the zip and beside it.
    """

    def __init__(
        self,
        env: Environment,
        rng: Rng,
        *,
        path: str | None,
        algorithm: str | None = None,
        vec_normalize: GivenStatistics = None,
        deterministic: bool = True,
        trust: bool = False,
        expected_return: float | None = None,
    ) -> None:
        if path is None:
            raise ValueError("set the zip of the agent: policy.path=agent.zip")
        zipped = Path(path).expanduser()
        if zipped.is_dir():
            folder = zoo_agent(zipped, env)
            zipped = folder.zip
            if vec_normalize is None and folder.vec_normalize is not None:
                vec_normalize = str(folder.vec_normalize)
        model = load_agent(zipped, env.make(), algorithm=algorithm, trust=trust)
        self.expected_return = find_expected_return(zip_file(zipped), expected_return)
        if vec_normalize is None and seems_normalised(zipped):
            raise ValueError(
                f"{zipped} was trained under VecNormalize, so it needs normalised observations: "
                'pass its statistics, vec_normalize="statistics.pkl", or vec_normalize=False to explain it '
                "without them (on the command line: policy.vec_normalize=...)"
            )
        statistics = _frozen_statistics(model, env, vec_normalize, trust)
        self.policy = policy_in(env, model, deterministic, statistics)


def _frozen_statistics(
    model: BaseAlgorithm, env: Environment, given: GivenStatistics, trust: bool = False
) -> ObservationNormalization | Literal[False] | None:
    """The normalisation of a model's observations, which further training does not change."""
    found = find_statistics(model, env, given, trust)
    return frozen(found, env.observation_space) if isinstance(found, VecNormalize) else found


class GivenModel(Pretrained):
    """A live model, given from Python, which is not trained any further.

    vec_normalize: the file of its statistics, or the wrapper itself; None: the VecNormalize of the model, if
        it has one; False: none. The current statistics are applied.
    """

    def __init__(
        self,
        env: Environment,
        rng: Rng,
        *,
        model: BaseAlgorithm,
        deterministic: bool = True,
        vec_normalize: GivenStatistics = None,
    ) -> None:
        if not isinstance(model, BaseAlgorithm):
            raise ValueError(f"model: expected a Stable-Baselines3 model, got a {type(model).__name__}")
        check_same_world(env, model)
        statistics = _frozen_statistics(model, env, vec_normalize)
        self.policy = policy_in(env, model, deterministic, statistics)
        self.expected_return = expected_of_model(model)


class TrainedAgent:
    """An agent trained by one of SB3's algorithms.

    algorithm: makes the model, given `env`, `seed` and `device`.
    stages: the training is split into this many stages, each of which resets the environments and has its own
        random stream; the result depends on their number.
    """

    def __init__(
        self,
        env: Environment,
        rng: Rng,
        *,
        algorithm: Callable[..., BaseAlgorithm],
        num_envs: int,
        steps: int = 100_000,
        deterministic: bool = True,
        stages: int = 10,
    ) -> None:
        self.steps = whole_number("steps", steps, at_least=0)
        self.stages = whole_number("stages", stages, at_least=1)
        copies = whole_number("num_envs", num_envs, at_least=1)
        envs = DummyVecEnv([lambda: Monitor(CheckedEnv(env.make()))] * copies)
        self.model = algorithm(env=envs, seed=reset_seed(rng), device="cpu")
        if isinstance(self.model, MaskablePPO) and not is_masking_supported(envs):
            raise ValueError(
                f"{env.id} has no method action_masks, which MaskablePPO needs for training: add it to the "
                "environment, or use policy=sb3_ppo"
            )
        self.policy = policy_in(env, self.model, deterministic)
        obstacle = indivisible(self.model)
        if obstacle is not None and self.stages > 1:
            log.warning("the policy is trained in one stage instead of %d: %s", self.stages, obstacle)
            self.stages = 1
        self._seeds = [reset_seed(rng) for _ in range(self.stages)]

    def train(
        self,
        callbacks: Iterable[TransitionsHandler] = (),
        info_keys: Sequence[str] = (),
        on_metrics: MetricsCallback = no_metrics,
        stage: int | None = None,
    ) -> None:
        """Train a stage (None: all), passing transitions to the callbacks and SB3's metrics to `on_metrics`.

        Steps that SB3 takes beyond the end of a stage, to finish a rollout, count for the next stage.
        """
        recurrent = self.policy if isinstance(self.policy, RecurrentPolicy) else None
        watching = TransitionCallback(tuple(callbacks), info_keys=info_keys, recurrent=recurrent, resets=True)
        for number in range(self.stages) if stage is None else (stage,):
            left = self.steps * (number + 1) // self.stages - self.model.num_timesteps
            if left > 0:
                begin(self.model, self._seeds[number])
                self.model.set_logger(logger(on_metrics))
                with progress_of(self.model, self.steps):
                    self.model.learn(left, callback=watching, reset_num_timesteps=False)

    def state(self) -> State:
        """The state of the agent, and what the remaining stages start from."""
        return state(self.model, over=self.model.num_timesteps >= self.steps)

    def restore(self, state: State) -> None:
        """Restore a state, to act and to continue training."""
        restore(self.model, state, over=CheckedArrays(state).number("num_timesteps") >= self.steps)
