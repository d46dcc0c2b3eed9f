"""Ctrl-C in compiled code."""

import pytest

from tpd.kernels.interrupts import interruptible


def test_ctrl_c_in_compiled_code_is_ctrl_c() -> None:
    with pytest.raises(KeyboardInterrupt), interruptible():
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()
    with pytest.raises(SystemError), interruptible():
        raise SystemError("something else") from ValueError()
