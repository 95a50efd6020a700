"""Which host answers for STS in a region. Read from botocore's own table, without botocore."""

import json
import re
from functools import cache
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"
"""What botocore reads, trimmed by `scripts/trim_botocore.py`."""


@cache
def _partitions() -> tuple[tuple[str, re.Pattern[str], str], ...]:
    """Id, regions and DNS suffix of each partition: commercial, China, sovereign and the rest."""
    table = json.loads((DATA / "partitions.json").read_text())["partitions"]
    return tuple((one["id"], re.compile(one["regionRegex"]), one["outputs"]["dnsSuffix"]) for one in table)


def partition(region: str) -> str:
    """As in an ARN: `aws`, `aws-cn`, …; an unknown region is taken to be a new commercial one, as botocore does."""
    return next((name for name, regions, _ in _partitions() if regions.match(region)), "aws")


def sts_host(region: str) -> str:
    """The regional endpoint; the global one is in one place only and is not asked."""
    suffix = next((suffix for _, regions, suffix in _partitions() if regions.match(region)), "amazonaws.com")
    return f"sts.{region}.{suffix}"
