"""Environment variables between launcher and training script, and what a child process may inherit."""

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from executor.errors import PlanRefused

PLAN: Final = "MESHWRIGHT_PLAN"
"""Path of the plan being run."""
REPORT: Final = "MESHWRIGHT_REPORT"
"""Directory each process writes `rank-N.json` into."""
FAILURE_FILE: Final = "failure.json"
"""In that directory: the processes that had failed when torchrun found out, with their exit codes."""
DEEPSPEED_CONFIG: Final = "MESHWRIGHT_DEEPSPEED_CONFIG"
"""Path of the DeepSpeed configuration written from the plan."""
WARMUP_STEPS: Final = "MESHWRIGHT_WARMUP_STEPS"
TIMED_STEPS: Final = "MESHWRIGHT_TIMED_STEPS"
MEMORY_CAP: Final = "MESHWRIGHT_MEMORY_CAP"
"""Bytes that each process may hold; absent: no cap."""
SLOWDOWN: Final = "MESHWRIGHT_SLOWDOWN"
"""Set where a run ends by itself when its loss is no number or its steps take so many times as long."""
CHECKPOINTS: Final = "MESHWRIGHT_CHECKPOINTS"
"""Directory of checkpoints, the same for all attempts of a job."""
CHECKPOINT_EVERY: Final = "MESHWRIGHT_CHECKPOINT_EVERY"

INHERITED: Final = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TMPDIR", "XDG_CACHE_HOME"),
        *("VIRTUAL_ENV", "CONDA_PREFIX", "LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH"),
        *("HF_HOME", "HF_HUB_OFFLINE", "HF_DATASETS_CACHE", "TORCH_HOME", "TORCH_EXTENSIONS_DIR"),
        *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CC", "CXX", "MAX_JOBS"),
    }
)
"""Names that a training needs and that hold no secret. Anything else is passed by name only."""
INHERITED_PREFIXES: Final = ("LC_", "CUDA_", "NCCL_", "GLOO_", "TORCH_NCCL_", "NVIDIA_", "DS_", "PYTORCH_", "TRITON_")
RECOMMENDABLE: Final = frozenset({"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "CUDA_DEVICE_MAX_CONNECTIONS"})
"""What a plan may set. It is data from elsewhere: variables that load code (LD_PRELOAD, plugins) are not its to set."""


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""Of a variable that a shell can set (POSIX.1-2024, 3.216)."""


def check_names(names: Iterable[str]) -> None:
    """Hold names that a user passes on against what a variable can be called.

    Raises:
        PlanRefused: naming the first that is none.
    """
    for name in names:
        if not _NAME.fullmatch(name):
            raise PlanRefused(f"--pass-env {name!r} is no name of a variable: letters, digits and _, no digit first")


def unset(names: Iterable[str]) -> tuple[str, ...]:
    """A note for each name to be passed on that this process does not have."""
    return tuple(f"--pass-env {name}: it is not set here, so the training does not have it either"
                 for name in names if name not in os.environ)  # fmt: skip


def child_environment(
    parent: Mapping[str, str] | None = None, *, passed: Iterable[str] = (), added: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The environment of launched processes: the inherited list, names the user passed, and what the launch adds."""
    source = os.environ if parent is None else parent
    named = frozenset(passed)
    kept = {
        name: value
        for name, value in source.items()
        if name in INHERITED or name in named or name.startswith(INHERITED_PREFIXES)
    }
    return kept | dict(added or {})


def python_path() -> str:
    """The caller's PYTHONPATH behind the directory this package is in: a checkout runs uninstalled too."""
    ours = str(Path(__file__).resolve().parent.parent)
    theirs = os.environ.get("PYTHONPATH")
    return os.pathsep.join((ours, theirs)) if theirs else ours
