"""When the explainer learns: alongside the policy, after it, or both."""

from collections.abc import Sequence

import numpy as np

from tpd.checks import boolean, whole_number
from tpd.envs import Environment
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration
from tpd.types import Trainer, TransitionsCallback


class Training:
    """Calls the same learner hook from the policy's own training and from transitions collected after."""

    def __init__(
        self,
        *,
        alongside: bool,
        steps: int,
        epsilon: float,
        num_envs: int,
        least_tried: bool,
        restarts: float,
    ) -> None:
        self.alongside = boolean("alongside", alongside)
        self.steps = whole_number("steps", steps, at_least=0)
        self.exploration = Exploration(epsilon, least_tried, restarts)
        self.num_envs = whole_number("num_envs", num_envs, at_least=1)

    def check(self, env: Environment, info_keys: Sequence[str]) -> None:
        """Refuse what the environment cannot do, before any work."""
        if self.exploration.restarts and not env.restarts(info_keys):
            raise ValueError(f"{env.id} cannot be restarted in a chosen state: restarts must be 0")

    def transitions(self, trainer: Trainer) -> int:
        """How many transitions the learner will see."""
        return self.steps + (trainer.steps if self.alongside else 0)

    def run(
        self,
        env: Environment,
        trainer: Trainer,
        rng: np.random.Generator,
        *,
        learning: Sequence[TransitionsCallback],
        watching: Sequence[TransitionsCallback] = (),
        info_keys: Sequence[str] = (),
    ) -> None:
        """Train the policy and whoever is learning; `watching` only follows the policy's training."""
        trainer.train([*watching, *learning] if self.alongside else watching, info_keys)
        if not learning:
            return
        batches = collect(
            env,
            trainer.policy,
            rng,
            steps=self.steps,
            exploration=self.exploration,
            num_envs=self.num_envs,
            info_keys=info_keys,
        )
        for batch in batches:
            for learn in learning:
                learn(batch)
