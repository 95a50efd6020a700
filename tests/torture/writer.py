"""The writer: adopts what is there, as a restarted agent does, and writes generations until it is killed.

`python -m tests.torture.writer DIRECTORY`; for each number on standard input a fresh process is forked that writes up
to it (a whole interpreter's start would take longer than a life). SIGKILL may come at any moment of it.
"""

import asyncio
import os
import sys
import time
from pathlib import Path

from tests.torture.story import GRACE, PERIOD, content, grant, number_in, report, sink


async def write(directory: Path, last: int) -> None:
    writer = sink(directory)
    prior = await writer.adopt()
    number = 0
    if prior and prior.token:
        number = number_in("token", prior.token.reveal())
        assert prior.token.reveal() == content("token", number)
    report(adopted=number, pid=os.getpid())
    while number < last:
        number += 1
        await writer.write(grant(number))
        found = await writer.read()
        assert found, "what was just written is not there"
        assert found.generation == number
        report(wrote=number)
        await asyncio.sleep(PERIOD)  # real time is the point here
    time.sleep(GRACE)
    assert await writer.read()  # as couriers look now and then; sweeps
    await writer.close()


def main(directory: Path) -> None:
    for line in sys.stdin:
        if not (child := os.fork()):
            asyncio.run(write(directory, int(line)))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        report(ended=os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
