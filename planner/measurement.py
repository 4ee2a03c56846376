"""One measured training run, as a row of the common header states it. An empty cell is None: unknown, no default."""

from collections.abc import Mapping
from typing import Final

from pydantic import Field

from cost_models.specs.base import Spec

WHOLE_NUMBERS: Final = (
    "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "seq_len", "n_gpus", "gpus_per_node",
    "tp", "pp", "cp", "ep", "dp", "zero_stage", "micro_batch", "grad_accum", "global_batch_seqs", "vpp",
)  # fmt: skip
NUMBERS: Final = (
    "params_b", "gpu_mem_gb", "step_time_s", "tokens_per_s_per_gpu", "samples_per_s", "tflops_per_gpu", "mfu", "hfu",
    "peak_mem_gb",
)  # fmt: skip
TEXTS: Final = (
    "source", "ref", "model", "gpu", "interconnect", "framework", "precision", "method", "offload", "recompute",
    "flash_attn", "optimizer", "mem_kind", "outcome", "notes",
)  # fmt: skip
HEADER: Final = (
    "source", "ref", "model", "params_b", "layers", "hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "seq_len",
    "gpu", "gpu_mem_gb", "n_gpus", "gpus_per_node", "interconnect", "framework", "precision", "method", "tp", "pp",
    "cp", "ep", "dp", "zero_stage", "offload", "micro_batch", "grad_accum", "global_batch_seqs", "recompute",
    "flash_attn", "vpp", "optimizer", "step_time_s", "tokens_per_s_per_gpu", "samples_per_s", "tflops_per_gpu", "mfu",
    "hfu", "peak_mem_gb", "mem_kind", "outcome", "notes",
)  # fmt: skip
"""The common header, in its order."""
TIMES: Final = ("step_time_s", "tokens_per_s_per_gpu", "samples_per_s")
"""The three spellings of how long a step took."""
UNREAD: Final = ("tflops_per_gpu", "mfu", "hfu")
"""Columns that no prediction and no comparison reads."""


class Measurement(Spec):
    """A row. Texts are as printed; `facts` holds what the free text of `notes` states in the published tokens."""

    file: str = ""
    line: int = 0
    source: str = "unknown"
    ref: str = ""
    model: str = ""
    gpu: str = ""
    interconnect: str = ""
    framework: str = ""
    precision: str = ""
    method: str = ""
    offload: str = ""
    recompute: str = ""
    flash_attn: str = ""
    optimizer: str = ""
    mem_kind: str = ""
    outcome: str = ""
    notes: str = ""

    layers: int | None = None
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    ffn_hidden: int | None = None
    vocab: int | None = None
    seq_len: int | None = None
    n_gpus: int | None = None
    gpus_per_node: int | None = None
    tp: int | None = None
    pp: int | None = None
    cp: int | None = None
    ep: int | None = None
    dp: int | None = None
    zero_stage: int | None = None
    micro_batch: int | None = None
    grad_accum: int | None = None
    global_batch_seqs: int | None = None
    vpp: int | None = None

    params_b: float | None = None
    gpu_mem_gb: float | None = None
    step_time_s: float | None = None
    tokens_per_s_per_gpu: float | None = None
    samples_per_s: float | None = None
    tflops_per_gpu: float | None = None
    mfu: float | None = None
    hfu: float | None = None
    peak_mem_gb: float | None = None

    facts: Mapping[str, str] = Field(default_factory=dict)
    unreadable: tuple[str, ...] = ()
    """Columns whose cell is no number, or no positive one. A row is not used for what needs them."""

    @property
    def unreadable_inputs(self) -> tuple[str, ...]:
        """Those of them that predictions need."""
        return tuple(key for key in self.unreadable if key not in (*TIMES, *UNREAD, "peak_mem_gb"))

    @property
    def states_time(self) -> bool:
        """Whether the row says how long a step took, in any of the three spellings."""
        return any(getattr(self, key) is not None or key in self.unreadable for key in TIMES)

    @property
    def states_memory(self) -> bool:
        """Whether the row says how much memory was used."""
        return self.peak_mem_gb is not None or "peak_mem_gb" in self.unreadable

    @property
    def states_outcome(self) -> bool:
        """Whether the row says that the job ran or ran out of memory."""
        return self.outcome in {"ok", "oom"}
