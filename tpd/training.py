"""When the explainer learns: alongside the policy, after it, or both."""

from collections.abc import Sequence

import numpy as np

from tpd.checks import boolean, whole_number
from tpd.envs import Environment
from tpd.sources.collection import collect
from tpd.sources.exploration import Exploration, require_tables
from tpd.types import Report, Trainer, TransitionsCallback, no_report


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
        if alongside and self.steps == 0 and (least_tried or restarts):
            raise ValueError(
                "alongside the policy's training it is the trainer that explores: "
                "with steps=0, least_tried must be false and restarts 0"
            )

    def check(self, env: Environment, info_keys: Sequence[str]) -> None:
        """Refuse what the environment cannot do, before any work."""
        if env.tabular and self.steps:
            require_tables(env)
        if self.exploration.least_tried and not env.tabular:
            raise ValueError(f"{env.id} has no numbered states to count visits of: least_tried must be false")
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
        report: Report = no_report,
    ) -> None:
        """Train the policy and whoever is learning; `watching` only follows the policy's training."""
        trainer.train([*watching, *learning] if self.alongside else watching, info_keys, report)
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
