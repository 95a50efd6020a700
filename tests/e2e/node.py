"""SDKs for Node.js, installed once for each list of them, outside the tree."""

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

SCRIPTS = Path(__file__).parent.parent / "node"
PACKAGES = SCRIPTS / "package.json"


def node_path() -> Path:
    """What NODE_PATH has to be for the scripts in `tests/node`; the first call for a list takes a while. Blocks."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "workload-identity-agent-tests"
    cache.mkdir(parents=True, exist_ok=True)
    place = cache / hashlib.sha256(PACKAGES.read_bytes()).hexdigest()[:16]
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not place.exists():
            with tempfile.TemporaryDirectory(dir=cache) as folder:
                made = Path(folder) / "made"
                made.mkdir()
                shutil.copy(PACKAGES, made)
                command = ["npm", "install", "--omit=dev", "--no-audit", "--no-fund", "--no-package-lock", "--ignore-scripts", "--silent"]
                subprocess.run(command, cwd=made, check=True, timeout=300)
                made.rename(place)
    return place / "node_modules"
