"""A policy that is there already."""

from tpd.core.types import Policy
from tpd.policies.pretrained import Pretrained


class GivenPolicy(Pretrained):
    """A policy source for an object that already is a policy."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
