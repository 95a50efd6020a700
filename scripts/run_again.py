"""Runs again the tests that failed in the last run, one after another: only those that `tests/known_flakes.txt` names.

It lists what it runs again. One failure whose name is not in the file fails the run at once.
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
KNOWN = ROOT / "tests" / "known_flakes.txt"


def main(folder: Path) -> int:
    cache = folder / ".pytest_cache" / "v" / "cache" / "lastfailed"
    failed = sorted(json.loads(cache.read_text())) if cache.exists() else []
    known = [line for line in KNOWN.read_text().splitlines() if line and not line.startswith("#")]
    unknown = [name for name in failed if not any(name == one or name.startswith(f"{one}[") for one in known)]
    if unknown or not failed:
        print("failed, and not run again:", *(unknown or ["no test that the last run names"]), sep="\n  ", file=sys.stderr)
        return 1
    print("known flakes, run again:", *failed, sep="\n  ", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "0", *failed], cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
