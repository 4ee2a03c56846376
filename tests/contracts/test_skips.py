"""A skip that nobody allowed fails in CI."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import allowed_skips

ROOT = Path(__file__).parents[2]
BODY = {
    "call": "import pytest\ndef test_it():\n    pytest.skip('no tool')\n",
    "mark": "import pytest\n@pytest.mark.skip(reason='no tool')\ndef test_it():\n    pass\n",
    "module": "import pytest\npytest.importorskip('a_package_that_is_not_there')\ndef test_it():\n    pass\n",
}


def run(folder: Path, body: str, *, ci: str) -> tuple[int, str]:
    """A tree with our conftest and one test of the given text, run by pytest in a process of its own."""
    (folder / "conftest.py").write_text("from tests.conftest import *  # noqa: F403\n", encoding="utf-8")
    (folder / "test_case.py").write_text(body, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(folder)]
    done = subprocess.run(
        command, cwd=folder, env={"CI": ci, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("kind", sorted(BODY))
def test_an_unexpected_skip_fails_in_ci(tmp_path: Path, kind: str) -> None:
    code, output = run(tmp_path, BODY[kind], ci="true")
    assert code != 0
    assert "allowed_skips.txt does not allow it" in output


def test_a_skip_passes_elsewhere(tmp_path: Path) -> None:
    code, output = run(tmp_path, BODY["call"], ci="")
    assert code == 0, output


def test_an_expected_failure_is_no_skip(tmp_path: Path) -> None:
    body = "import pytest\n@pytest.mark.xfail\ndef test_it():\n    assert False\n"
    code, output = run(tmp_path, body, ci="true")
    assert code == 0, output


def test_the_allow_list_gives_reasons() -> None:
    allowed_skips((ROOT / "tests" / "allowed_skips.txt").read_text(encoding="utf-8"))
    with pytest.raises(ValueError, match="has no reason"):
        allowed_skips("tests/e2e/test_x.py::test_y\n")
