"""Figures as a config names them."""

import pytest

from tpd.envs import Environment
from tpd.show.figures import FigureSpec


def test_a_figure_is_no_way_out_of_its_folder() -> None:
    with pytest.raises(ValueError, match="must be a file name"):
        FigureSpec.from_config("../x", Environment("FrozenLake-v1"), [{"state": 3}])
