"""Run an experiment, or with -m a sweep: `python scripts/run.py -m experiment=paper 'seed=range(10)'`."""

from tpd.run.cli import run

if __name__ == "__main__":
    run()
