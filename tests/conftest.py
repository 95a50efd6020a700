"""Two rules for every run: in CI a skipped test has failed, and tests that need the machine for themselves run by themselves."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

MARK = "pytest.mark.alone"
PRECEDENCE = -15
"""Nice value."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """`make test` and `make matrix` run pytest twice: in parallel without these tests, and serially with nothing else."""
    parser.addoption("--alone", choices=("without", "only"), help="leave out the tests that are marked `alone`, or all others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Apply `--alone`."""
    if wanted := config.getoption("alone"):
        dropped = [item for item in items if (item.get_closest_marker("alone") is None) is (wanted == "only")]
        items[:] = [item for item in items if item not in set(dropped)]
        config.hook.pytest_deselected(items=dropped)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> Any:
    """Import no module without the mark for `--alone only`: all of them take half a minute of processor time."""
    config = parent.config
    if config.getoption("alone") != "only" or any("::" in argument for argument in config.args) or MARK in module_path.read_text():
        return None
    return _Skipped.from_parent(parent, path=module_path)


class _Skipped(pytest.Module):
    """A module without a test that is marked `alone`."""

    def collect(self) -> list[Any]:
        return []


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[Any]:
    """Give tests that are marked `alone`, and what they start, precedence over the machine's other programs, if the user may."""
    if item.get_closest_marker("alone") is None:
        return (yield)
    before = _precede(PRECEDENCE)
    try:
        return (yield)
    finally:
        if before is not None:
            _precede(before)


def _precede(nice: int) -> int | None:
    """Return the nice value that held before; None if the user may not change it."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
        Path("/proc/self/autogroup").write_text(str(nice))  # among sessions, only this one counts: sched(7)
    except FileNotFoundError:
        pass  # a kernel without groups
    except OSError:
        return None
    return before


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
