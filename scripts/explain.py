"""Ask about a finished run: `python scripts/explain.py run=<run id> row=2 col=0 fuel=6 passenger=false`."""

from tpd.run.cli import explain

if __name__ == "__main__":
    explain()
