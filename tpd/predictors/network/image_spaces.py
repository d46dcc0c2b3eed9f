"""Recognises image observation spaces and their channel order."""

from typing import Any

import numpy as np
from gymnasium import spaces


def is_image(space: spaces.Space[Any]) -> bool:
    """Whether observations are images: uint8 with three axes."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3 and space.dtype == np.uint8


def channels_last(space: spaces.Space[Any]) -> bool:
    """Whether the last axis of an image is the shortest."""
    assert space.shape is not None
    return int(np.argmin(space.shape)) == len(space.shape) - 1


def channels_first(space: spaces.Space[Any]) -> spaces.Box:
    """The same space with channels first."""
    assert space.shape is not None
    height, width, channels = space.shape
    shape = (channels, height, width) if channels_last(space) else space.shape
    return spaces.Box(0, 255, shape, np.uint8)
