"""What the container image has installed, and nothing else: a folder of links to the packages of `requirements.lock`.

A development environment holds more, and some libraries load whatever they find: structlog takes `rich` where there is one,
which costs 50 ms and several MiB that no deployed agent pays.
"""

import re
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def fill(folder: Path) -> None:
    """Links each package, the agent and these programs into the folder, for PYTHONPATH of a Python that runs with -S."""
    for name in re.findall(r"^([a-z0-9][a-z0-9._-]*)(?:\[[^]]*\])?==", (ROOT / "requirements.lock").read_text(), re.MULTILINE):
        try:
            found = distribution(name)
        except PackageNotFoundError:  # another platform's
            continue
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (folder / top).exists():  # some packages share their name's first part
                (folder / top).symlink_to(Path(str(found.locate_file(top))))
    for top in ("agent", "bench"):
        (folder / top).symlink_to(ROOT / top)
