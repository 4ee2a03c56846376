"""What cannot end well is refused or said before anything starts."""

from pathlib import Path

import pytest

from executor import environment
from executor.caps import check_cap, check_size
from executor.device import check_precision
from executor.errors import PlanRefused, RunFailed, ServiceAway
from executor.files import check_writable, empty_directory
from executor.launch import LaunchOptions, Script
from executor.launchers import BatchOptions, batch_launch
from executor.probing import check_asked
from executor.spool import Spool
from tests.unit.executor.plans import configuration, feasible, prediction


@pytest.mark.parametrize("place", ["/proc/x", "/dev/null", "/dev/null/x"])
def test_a_place_that_cannot_be_written(place: str) -> None:
    with pytest.raises(PlanRefused, match=f"--out {place} cannot be written: "):
        empty_directory(Path(place))
    with pytest.raises(PlanRefused, match="cannot be written: "):
        Spool(Path(place))


def test_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = Path("/dev/full")
    monkeypatch.setattr("tempfile.NamedTemporaryFile", lambda **_: full.open("wb", buffering=0))
    with pytest.raises(PlanRefused, match="no space left on device"):
        empty_directory(tmp_path / "run")


def test_the_probes_file_is_looked_at_before_the_measurement(tmp_path: Path) -> None:
    check_writable(tmp_path / "probe.yaml")
    for out, why in (("/proc/nope.yaml", "cannot be written"), (str(tmp_path), "is a directory")):
        with pytest.raises(PlanRefused, match=why):
            check_asked(names=("a",), memory_bytes=None, processes=2, out=Path(out))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../x y", "Upper", "", "-a", "a" * 201, "a\n"])
def test_a_probes_name_obeys_the_rule_of_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(PlanRefused, match="is no name of a device or cluster"):
        check_asked(names=("cpu-probe", name), memory_bytes=None, processes=2, out=tmp_path / "p.yaml")


def test_memory_that_the_node_does_not_have_names_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("executor.caps.read_memory", lambda: {"MemTotal": 2**34})
    check_size("--memory", 2**33, processes=2)
    with pytest.raises(PlanRefused, match=r"--memory 2 x 10995116277760 bytes exceeds this node's 17179869184"):
        check_size("--memory", 10 * 2**40, processes=2)
    with pytest.raises(PlanRefused, match="1024 bytes is less than"):
        check_cap(1024, prediction(), kind="cpu")
    with pytest.raises(PlanRefused, match="exceeds this node's"):
        check_cap(100 * 2**40, prediction(), kind="cpu")
    with pytest.raises(PlanRefused, match="the plan is for GPUs"):
        check_cap(2**30, prediction(), kind="gpu")
    assert check_cap(2**30, prediction(), kind="cpu") == ()
    (note,) = check_cap(2**21, prediction(allocated_bytes=2**22), kind="cpu")
    assert f"{2**22} bytes, above the cap of {2**21}" in note


@pytest.mark.parametrize("backend", ["deepspeed", "ddp", "fsdp"])
def test_a_cpu_trains_in_no_fp16_under_any_back_end(backend: str) -> None:
    check_precision(configuration(backend={"name": backend}, precision="bf16"))
    with pytest.raises(PlanRefused, match="precision is fp16, this node trains on its CPU in bf16 or fp32"):
        check_precision(configuration(backend={"name": backend}, precision="fp16"))


@pytest.mark.parametrize("name", ["A=B;C", "1A", "", "A B", "A\n", "é"])
def test_a_name_that_no_variable_has(name: str) -> None:
    with pytest.raises(PlanRefused, match="is no name of a variable"):
        LaunchOptions(directory=Path("/d"), passed=(name,))


def test_a_variable_that_is_not_set_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "1")
    monkeypatch.delenv("AWAY", raising=False)
    (note,) = environment.unset(["HERE", "AWAY"])
    assert note.startswith("--pass-env AWAY: it is not set")


@pytest.mark.parametrize(
    ("option", "good", "bad"),
    [
        ("time_limit", ["90", "10:30", "1:00:00", "1-12", "1-12:30", "2-00:00:00", "UNLIMITED"],
         ["1:00:00; touch x", "1h", "", "1:00\n", "-1", "1:2:3:4"]),
        ("image", ["train", "registry/train:1", "localhost:5000/a/b_c:v1.2", f"ghcr.io/a/b@sha256:{'0' * 64}"],
         ["img; rm -rf /", "", "a b", "Img:", "a:b:c/d e", "img\n"]),
    ],
)  # fmt: skip
def test_words_for_a_batch_system_are_spelled_as_it_takes_them(option: str, good: list[str], bad: list[str]) -> None:
    def launched(word: str) -> None:
        batch = BatchOptions(**{"image": "train", option: word})
        options, script = LaunchOptions(directory=Path("/d")), Script(path=Path("t.py"))
        batch_launch(feasible(), script, options, "kubernetes", batch)

    for word in good:
        launched(word)
    for word in bad:
        with pytest.raises(PlanRefused, match=f"--{option.replace('_', '-')} "):
            launched(word)


def test_exit_codes() -> None:
    from executor.cli import exit_code

    assert exit_code(ServiceAway("away")) == 4
    assert exit_code(PlanRefused("no")) == 2
    assert exit_code(RunFailed("bad")) == 1
