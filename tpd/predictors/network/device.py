"""Chooses the torch device, and seeds torch."""

import torch

from tpd.guards.settings import one_of


def choose_device(wanted: str) -> torch.device:
    """The device of that name; "auto" is CUDA or MPS if available, else the CPU."""
    kind = str(wanted).partition(":")[0]
    one_of("device", kind, ("auto", "cpu", "cuda", "mps"))
    if kind == "auto":
        kind = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
        return torch.device(kind)
    there = {"cpu": True, "cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    if not there[kind]:
        raise ValueError(f"device is {wanted!r}, but this machine has no {kind.upper()}: use auto or cpu")
    return torch.device(wanted)


def seed_torch(number: int) -> None:
    """Seed torch's global generators."""
    if torch.accelerator.is_available():
        torch.manual_seed(number)
    else:
        torch.default_generator.manual_seed(number)  # manual_seed formats a stack trace for each kind of GPU
