"""Makes `agent/providers/aws/data` from the installed botocore: the files that its STS client reads, and no others.

botocore parses 1.25 MB of endpoints of all services before the first request; that takes 7 MiB of memory and nearly all
the time of making a client. Run this after upgrading botocore; a test compares the result with the files.
"""

import gzip
import json
from pathlib import Path
from typing import Any

import botocore

SOURCE = Path(botocore.__file__).parent / "data"
TARGET = Path(__file__).resolve().parent.parent / "agent" / "providers" / "aws" / "data"
API = "sts/2011-06-15"


def trimmed() -> dict[str, str]:
    """Return the text of each file by its path below `agent/providers/aws/data`."""
    endpoints = _read("endpoints.json")
    for partition in endpoints["partitions"]:
        partition["services"] = {name: service for name, service in partition["services"].items() if name == "sts"}
    files = {
        f"{API}/service-2.json": _undocumented(_read(f"{API}/service-2.json.gz")),
        f"{API}/endpoint-rule-set-1.json": _read(f"{API}/endpoint-rule-set-1.json.gz"),
        "endpoints.json": endpoints,
        "partitions.json": _read("partitions.json"),
        "_retry.json": _read("_retry.json"),
        "sdk-default-configuration.json": _read("sdk-default-configuration.json"),
    }
    return {path: json.dumps(content, indent=1) + "\n" for path, content in files.items()}


def _read(path: str) -> Any:
    data = (SOURCE / path).read_bytes()
    return json.loads(gzip.decompress(data) if path.endswith(".gz") else data)


def _undocumented(node: Any) -> Any:
    """Return a copy without prose. A structure may have a member called `documentation`; only text is prose."""
    if isinstance(node, dict):
        return {key: _undocumented(value) for key, value in node.items() if not (key == "documentation" and isinstance(value, str))}
    if isinstance(node, list):
        return [_undocumented(value) for value in node]
    return node


if __name__ == "__main__":
    for path, text in trimmed().items():
        file = TARGET / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
