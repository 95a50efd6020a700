"""The readers: each in a tight loop until its standard input is closed, then a line with what it saw.

`python -m tests.torture.reader pinned|by-path DIRECTORY`. `pinned` resolves `..data` once per read and must see one whole
generation; `by-path` opens each file by its path as SDKs do, may straddle a swap, and must never miss a file or see a
part of one. A reader that was itself stopped by the scheduler for longer than the grace cannot blame the writer: such
reads are counted, not judged, and few.
"""

import os
import select
import sys
import time
from pathlib import Path

from tests.torture.story import FILES, GRACE, number_in, report


def pinned(directory: Path) -> list[int]:
    fd = os.open(directory / "..data", os.O_RDONLY | os.O_DIRECTORY)
    try:
        numbers = []
        names = set(os.listdir(fd))
        if names != {*FILES, "grant.json"}:
            raise ValueError(f"the generation holds {sorted(names)}")
        for file in FILES:
            with open(os.open(file, os.O_RDONLY, dir_fd=fd), encoding="utf-8") as opened:
                numbers.append(number_in(file, opened.read()))
    finally:
        os.close(fd)
    if len(set(numbers)) != 1:
        raise ValueError(f"mixed generations {numbers}")
    return numbers


def by_path(directory: Path) -> list[int]:
    return [number_in(file, (directory / file).read_text()) for file in FILES]


def main(kind: str, directory: Path) -> None:
    read = {"pinned": pinned, "by-path": by_path}[kind]
    reads = straddled = late = newest = 0
    faults: list[str] = []
    seen: set[int] = set()
    report(ready=True)
    while not select.select([sys.stdin], [], [], 0)[0]:
        began = time.monotonic()
        try:
            numbers = read(directory)
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and time.monotonic() - began > GRACE:
                late += 1
            elif len(faults) < 10:
                faults.append(f"after {reads} reads: {type(error).__name__}: {error}")
            continue
        reads += 1
        if numbers[0] < newest:
            faults.append(f"went back from {newest} to {numbers[0]}")
        if max(numbers) - min(numbers) > 1 and time.monotonic() - began < GRACE / 25:
            faults.append(f"{numbers} are not neighbours")
        straddled += len(set(numbers)) > 1
        newest = max(newest, *numbers)
        seen.update(numbers)
    report(kind=kind, reads=reads, straddled=straddled, late=late, generations=len(seen), newest=newest, faults=faults)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
