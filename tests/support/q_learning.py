"""Q-learning on a small budget."""

from tpd.core.seeding import generator
from tpd.envs import Environment
from tpd.policies.q_learning import QLearning


def q_learning(env: Environment, steps: int = 20_000, seed: int = 0, stages: int = 1) -> QLearning:
    return QLearning(
        env,
        generator(seed, "policy"),
        steps=steps,
        discount=0.9,
        learning_rate=0.1,
        epsilon_start=1.0,
        epsilon_end=0.05,
        epsilon_decay_steps=steps // 2,
        num_envs=10,
        explained_epsilon=0.0,
        stages=stages,
    )
