"""Trainings that write and read datasets."""

from typing import Any

from tests.support import small_mdp
from tpd.core.types import Array
from tpd.policies.pretrained import Pretrained
from tpd.predictors.replayed.learner import ReplayedFHTD
from tpd.run.training import Training

STEPS = 12_000


class Given(Pretrained):
    """The small environment's policy, as a source."""

    def __init__(self) -> None:
        self.policy = small_mdp.policy()


def training(**settings: Any) -> Training:
    usual = {"alongside": False, "steps": STEPS, "epsilon": 0.2, "num_envs": 10, "least_tried": False}
    return Training(**{**usual, "restarts": 0.0, **settings})


def learner() -> ReplayedFHTD:
    return ReplayedFHTD(small_mdp.environment(), Given().policy, small_mdp.outcomes(), horizon=8)


def assert_same(first: Array, second: Array) -> None:
    """Every bit, the dtype and the shape."""
    assert (first.dtype, first.shape) == (second.dtype, second.shape)
    assert first.tobytes() == second.tobytes()
