"""The device that networks are learned on."""

import torch

from tpd.guards.settings import one_of

AUTO = "auto"


def device_named(name: str) -> torch.device:
    """The device of that name; "auto" is CUDA or MPS where there is one, else the CPU."""
    there = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if name == AUTO:
        return torch.device(next(kind for kind, available in there.items() if available))
    one_of("device", str(name).partition(":")[0], (AUTO, *there))
    if not there[str(name).partition(":")[0]]:
        raise ValueError(f"device={name} is not available here: use device=auto or device=cpu")
    return torch.device(name)
