"""Deliver undelivered tracking data to the store: python scripts/sync.py [folder of runs or sweeps]."""

from tpd.run.cli import sync

if __name__ == "__main__":
    sync()
