"""A policy source for an existing policy object."""

from tpd.core.types import Policy
from tpd.policies.pretrained import Pretrained


class GivenPolicy(Pretrained):
    """A policy source that returns the given policy object."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
