"""Real time as a process has it: other programs' share of the processors is the machine's, and no fault of the agent."""

import time
from pathlib import Path


def held_up(pid: int | str = "self") -> float:
    """Return the seconds for which its main thread was ready to run and had no processor (/proc/PID/schedstat, the second number)."""
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[1]) / 1e9


def own_time(pid: int | str = "self") -> float:
    """Return a clock in seconds that stands still while the process waits for a processor."""
    return time.monotonic() - held_up(pid)
