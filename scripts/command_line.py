"""Writes the output of `wi-agent --help` into README.md. Run this after adding a command; a test compares the two."""

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "README.md"
BEGIN, END = "```text\n$ wi-agent --help\n", "```\n"


def rendered() -> str:
    """Return the whole page."""
    before, _, rest = TARGET.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + usage() + END + after


def usage() -> str:
    """Return the help text, in the same form everywhere: Python 3.13 writes `-c, --config FILE`, earlier versions write FILE twice."""
    environment = {"PATH": os.defpath, "COLUMNS": "110", "NO_COLOR": "1", "PYTHONPATH": str(ROOT)}
    said = subprocess.run([sys.executable, "-m", "agent", "--help"], env=environment, check=True, capture_output=True, text=True).stdout
    return re.sub(r"(-\w) [A-Z]+, (--[a-z-]+ [A-Z]+)", r"\1, \2", said)


if __name__ == "__main__":
    TARGET.write_text(rendered())
