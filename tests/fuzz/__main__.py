"""Coverage-guided fuzzing of every parser of foreign text: `make fuzz ARGS="--seconds 3600 [NAME …]"`.

The seconds are shared by the parsers. What atheris finds is measured again here, without its instrumentation, and only what remains
is a finding: exit 1, with the input's file.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from tests.fuzz.parsers import finding, parsers

GRACE_SECONDS = 300.0
"""In which a process loads what it instruments, which takes long beside other work; one that is not over by then hangs."""


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seconds", type=int, default=3600)
    options.add_argument("--keep", type=Path, default=None, help="a folder for corpus and findings, instead of a temporary one")
    options.add_argument("names", nargs="*", metavar="NAME")
    chosen = options.parse_args()
    folder = chosen.keep or Path(tempfile.mkdtemp(prefix="fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    total, bad = 0, 0
    with parsers(folder) as made:
        wanted = [parser for parser in made if not chosen.names or parser.name in chosen.names]
        each = max(1, chosen.seconds // max(1, len(wanted)))
        for parser in wanted:
            place = folder / parser.name.replace(" ", "-")
            (place / "findings").mkdir(parents=True)
            (place / "corpus").mkdir()
            began, code = time.monotonic(), 1
            with (place / "log").open("wb") as log, suppress(subprocess.TimeoutExpired):
                code = subprocess.run(
                    [sys.executable, "-m", "tests.fuzz.coverage_guided", parser.name, place, str(each)],
                    stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": "."}, timeout=each + GRACE_SECONDS, check=False,
                ).returncode  # fmt: skip
            tried = int((place / "tried").read_text()) if (place / "tried").exists() else 0
            total += tried
            print(f"{parser.name}: {tried} inputs, {tried / (time.monotonic() - began):.0f}/s", flush=True)
            if code:
                bad += 1
                print(f"  it ended with {code}: {place}/log", flush=True)
            for file in sorted((place / "findings").iterdir()):
                if found := finding(parser, file.read_bytes()):
                    bad += 1
                    print(f"  {found}\n  {file}", flush=True)
    print(f"{total} inputs, {bad} findings")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
