"""What holds for every test: reproducible draws, no network, and no skip in CI that nobody allowed."""

import os
from collections.abc import Generator
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.databases.fixtures import (  # noqa: F401
    database,
    database_alone,
    database_url,
    databases,
    postgresql_databases,
    postgresql_server,
    sqlite_databases,
)
from tests.scale import FULL, scaled

ALLOWED_SKIPS = Path(__file__).with_name("allowed_skips.txt")

settings.register_profile(
    "house",
    derandomize=True,
    deadline=None,
    max_examples=scaled(50, 500),
    suppress_health_check=[HealthCheck.too_slow],
    database=None,
)
settings.load_profile("house")

# Hub libraries must never reach out: being offline is normal for us and for the clusters we plan.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def allowed_skips(text: str) -> tuple[str, ...]:
    """The patterns of the allow-list.

    Raises:
        ValueError: a line without a reason.
    """
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line.strip() and not line.startswith("#")]
    for line in lines:
        if len(line) != 2:
            raise ValueError(f"{ALLOWED_SKIPS.name}: {line[0]} has no reason")
    return tuple(line[0] for line in lines)


def refuse_skip(report: Any, patterns: tuple[str, ...]) -> None:
    """Turn a skip that no pattern allows into a failure. Expected failures are no skips."""
    if report.outcome != "skipped" or hasattr(report, "wasxfail"):
        return
    if any(fnmatch(report.nodeid, pattern) for pattern in patterns):
        return
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
    report.outcome = "failed"
    report.longrepr = f"skipped in CI, and {ALLOWED_SKIPS.name} does not allow it: {reason}"


def _in_ci() -> bool:
    return os.environ.get("CI", "").lower() == "true"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave what is long to `make test-all`."""
    long = [] if FULL else [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    if _in_ci():
        refuse_skip(report, allowed_skips(ALLOWED_SKIPS.read_text(encoding="utf-8")))
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    if _in_ci():
        refuse_skip(report, allowed_skips(ALLOWED_SKIPS.read_text(encoding="utf-8")))
    return report
