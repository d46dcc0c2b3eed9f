"""What tests of several rooms start from: worlds, files, commands and builders, but no tests."""

from collections.abc import Callable

from omegaconf import DictConfig

Compose = Callable[..., DictConfig]
