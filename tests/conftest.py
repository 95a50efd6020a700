"""Where CI is set, a test that is skipped has failed: a check that quietly did not run is no check."""

import os
from collections.abc import Iterator
from typing import Any

import pytest


def _demand(report: Any) -> Any:
    if os.environ.get("CI") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} was skipped, which CI does not accept: {reason}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Iterator[Any]:
    """For tests that skip themselves."""
    return _demand((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Iterator[Any]:
    """For modules that skip themselves."""
    return _demand((yield))
