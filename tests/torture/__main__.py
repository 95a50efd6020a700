"""The ordeal by hand: `python -m tests.torture [GENERATIONS] [DIRECTORY]`."""

import sys
import tempfile
from pathlib import Path

from tests.torture.ordeal import torture

if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[2] if len(sys.argv) > 2 else None) as place:
        outcome = torture(Path(place) / "identity", int(sys.argv[1]) if len(sys.argv) > 1 else 2000, kill_every=20, seed=0)
    sys.stdout.write(f"kills: {outcome.kills}, in the middle of a write: {outcome.interrupted}\n")
    sys.stdout.writelines(f"{reader}\n" for reader in outcome.readers)
    sys.exit("\n".join(outcome.faults) or None)
