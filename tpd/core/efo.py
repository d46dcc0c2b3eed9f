"""The decomposition of fixed-horizon general value functions (FHGVF), and its inverse, as pure functions.

An FHGVF sums discounted expected future outcomes (EFO), `Q_h = sum_{i <= h} discount^i O_i`, so the outcomes
are `O_h = (Q_h - Q_{h-1}) / discount^h`.
"""

import numpy as np

from tpd.core.types import FloatArray
from tpd.guards.settings import number

LARGEST_ROUNDING_ERROR = 1e-3


def check_decomposition(discount: float, horizon: int, dtype: np.dtype[np.floating]) -> None:
    """Refuse a discount outside (0, 1], or one so small that dividing by its powers loses precision."""
    number("discount", discount, 0, 1, above_low=True)
    rounding = float(np.finfo(dtype).eps) / discount ** (horizon - 1)
    if rounding > LARGEST_ROUNDING_ERROR:
        raise ValueError(
            f"with horizon {horizon} and discount {discount}, outcomes computed from value functions in "
            f"{np.dtype(dtype).name} have rounding errors of up to {rounding:.1g} (limit "
            f"{LARGEST_ROUNDING_ERROR}): learn the outcomes directly (form=efo), or use a larger "
            "discount or float64"
        )


def decompose(fhgvf: FloatArray, discount: float, axis: int = -1) -> FloatArray:
    """`O_h = (Q_h - Q_{h-1}) / discount^h` along the horizon axis, with `Q_{-1} = 0`."""
    horizon = fhgvf.shape[axis]
    check_decomposition(discount, horizon, fhgvf.dtype)
    q = np.moveaxis(fhgvf, axis, -1)
    o = np.diff(q, axis=-1, prepend=0) / powers(discount, horizon).astype(fhgvf.dtype)
    return np.moveaxis(o, -1, axis)


def compose(efo: FloatArray, discount: float, axis: int = -1) -> FloatArray:
    """`Q_h = sum_{i <= h} discount^i O_i` along the horizon axis: the inverse of `decompose`."""
    number("discount", discount, 0, 1)
    o = np.moveaxis(efo, axis, -1)
    q = np.cumsum(o * powers(discount, o.shape[-1]), axis=-1)
    return np.moveaxis(q, -1, axis)


def powers(discount: float, horizon: int) -> FloatArray:
    """[horizon]: `discount^h`, the weight of a reward at step h."""
    return np.asarray(discount ** np.arange(horizon), dtype=np.float64)
