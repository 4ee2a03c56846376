"""One steady training step under the tracker."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from benchmarks.tracker.case import Case
from benchmarks.tracker.fake import build, masks_as_in_training, to_fake
from benchmarks.tracker.track import ShardedTracker, Tracker

_IGNORED = -100


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the tracker saw. [bytes]"""

    parameters: int
    trained: int
    static: dict[str, int]
    """Before the step, by kind."""
    after_forward: dict[str, int]
    after_backward: dict[str, int]
    after_step: dict[str, int]
    peaks: dict[str, dict[str, int]]
    """The peak of `fwd`, of `fwdbwd` and of `step`, by kind."""
    build_seconds: float
    run_seconds: float
    events: tuple[tuple[str, int], ...] = ()


def measure(case: Case, *, events: bool = False) -> Measured:
    """Run one case. Nothing is allocated and nothing computed."""
    started = time.perf_counter()
    with _mesh(case) as mesh:
        model = build(case)
        with FakeTensorMode(allow_non_fake_inputs=True), masks_as_in_training(padded=case.padded):
            to_fake(model)
            built = time.perf_counter()
            step = _Step(case, model, mesh)
            measured = step.run(events=events)
    return Measured(**measured, build_seconds=built - started, run_seconds=time.perf_counter() - built)


@contextmanager
def _mesh(case: Case) -> Iterator[Any]:
    """The ranks that shard. A mesh looks at values, so that it is made before tensors are fake."""
    if case.world == 1:
        yield None
        return
    import torch.distributed as dist  # noqa: PLC0415
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415  registers the backend

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=case.world)
    try:
        yield init_device_mesh("cpu", (case.world,))
    finally:
        dist.destroy_process_group()


class _Step:
    """A model, its optimizer and its batch."""

    def __init__(self, case: Case, model: nn.Module, mesh: Any) -> None:
        self.case, self.model = case, model
        parameters = list(model.parameters())
        self.parameters = sum(p.numel() for p in parameters)
        if case.lora:
            self.parameters -= sum(p.numel() for n, p in model.named_parameters() if "lora_" in n)
        self.trained_parameters = sum(p.numel() for p in parameters if p.requires_grad)
        if case.world > 1:
            _shard(model, case, mesh)
        self.trained = [p for p in model.parameters() if p.requires_grad]
        self.optimizer = _optimizer(case, self.trained)
        self.ids = torch.randint(0, 100, (case.micro_batch, case.sequence))
        self.batch = {"input_ids": self.ids, "labels": self.ids}
        if case.padded:
            self.batch["attention_mask"] = torch.ones_like(self.ids)
        model.config.use_cache = False  # type: ignore[union-attr]  # as transformers' Trainer does
        if case.chunks > 1:
            self.model = ChunkedLoss(model, case.chunks)

    def run(self, *, events: bool) -> dict[str, Any]:
        """A first step, in which the optimizer makes its states, and one that is measured."""
        tracker = self._tracker()
        with tracker:
            if self.case.world > 1:
                self._forward().backward()
                self.optimizer.step()
                self.optimizer.zero_grad()
                tracker.reset_mod_stats()
            else:
                for parameter in self.trained:
                    parameter.grad = torch.zeros_like(parameter)
                self.optimizer.step()
                self.optimizer.zero_grad()
            if events:
                tracker.events = []
            static, peaks = tracker.start_peak(), {}
            loss = self._forward()
            after_forward, peaks["fwd"] = tracker.now(), tracker.peak()
            loss.backward()
            del loss
            after_backward, peaks["fwdbwd"] = tracker.now(), tracker.peak()
            tracker.start_peak()
            self.optimizer.step()
            peaks["step"] = tracker.peak()
            self.optimizer.zero_grad()
            after_step = tracker.now()
        return {
            "parameters": self.parameters, "trained": self.trained_parameters, "static": static,
            "after_forward": after_forward, "after_backward": after_backward, "after_step": after_step,
            "peaks": peaks, "events": tuple(tracker.events or ()),
        }  # fmt: skip

    def _tracker(self) -> Any:
        if self.case.world > 1:
            sharded = ShardedTracker(self.model, self.optimizer)
            sharded.track_inputs((self.ids,))
            return sharded
        tracker = Tracker()
        tracker.track_external(self.model, self.optimizer, *self.batch.values())
        return tracker

    def _forward(self) -> torch.Tensor:
        context: AbstractContextManager[Any] = nullcontext()
        if self.case.precision == "fp32-autocast-bf16":
            context = torch.autocast("cpu", dtype=torch.bfloat16)
        with context:
            return self.model(**self.batch).loss  # type: ignore[no-any-return]


class ChunkedLoss(nn.Module):
    """A model whose head and loss are computed by chunks of tokens."""

    def __init__(self, model: nn.Module, chunks: int) -> None:
        """Over `model`, in `chunks` chunks."""
        super().__init__()
        self.model, self.chunks = model, chunks

    def forward(self, **batch: torch.Tensor) -> SimpleNamespace:
        """The loss, where the model's own output has it."""
        return SimpleNamespace(loss=_chunked_loss(self.model, batch, self.chunks))


def _chunked_loss(model: nn.Module, batch: dict[str, torch.Tensor], chunks: int) -> torch.Tensor:
    """Head and loss by chunks of tokens, each repeated in backward: no more than one chunk's logits live."""
    from torch.utils.checkpoint import checkpoint  # noqa: PLC0415

    inputs = {name: value for name, value in batch.items() if name != "labels"}
    hidden = model.base_model(**inputs).last_hidden_state.flatten(0, 1)  # type: ignore[operator]
    labels = nn.functional.pad(batch["labels"], (0, 1), value=_IGNORED)[..., 1:].flatten()
    head = model.get_output_embeddings()  # type: ignore[operator]

    def one(part: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(head(part).float(), target, reduction="sum", ignore_index=_IGNORED)

    total: Any = 0.0
    for part, target in zip(hidden.chunk(chunks), labels.chunk(chunks), strict=True):
        total = total + checkpoint(one, part, target, use_reentrant=False)
    return total / labels.numel()  # type: ignore[no-any-return]


def _shard(model: nn.Module, case: Case, mesh: Any) -> None:
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    options: dict[str, Any] = {"mesh": mesh, "reshard_after_forward": not case.sharding.endswith("no_reshard")}
    if case.precision == "fsdp-mp":
        options["mp_policy"] = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in _layers(model):
        fully_shard(layer, **options)
    fully_shard(model, **options)


def _layers(model: nn.Module) -> nn.ModuleList:
    """The stack of layers: the longest list of modules."""
    lists = [module for module in model.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=lambda each: sum(p.numel() for p in each.parameters()))


def _optimizer(case: Case, parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    if case.optimizer == "adamw-fp32master":
        return MasterAdamW(parameters, {"lr": 1e-4})
    options: dict[str, Callable[[], torch.optim.Optimizer]] = {
        "adamw-fused": lambda: torch.optim.AdamW(parameters, fused=True),
        "adamw-foreach": lambda: torch.optim.AdamW(parameters, foreach=True),
        "adamw-loop": lambda: torch.optim.AdamW(parameters, foreach=False),
    }
    return options[case.optimizer]()


class MasterAdamW(torch.optim.Optimizer):
    """AdamW over fp32 masters of 16-bit parameters, one parameter after another."""

    @torch.no_grad()
    def step(self, _: Any = None) -> None:  # type: ignore[override]
        """One update."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["master"] = parameter.float()
                    state["exp_avg"] = torch.zeros_like(state["master"])
                    state["exp_avg_sq"] = torch.zeros_like(state["master"])
                gradient = parameter.grad.float()
                state["exp_avg"].lerp_(gradient, 0.1)
                state["exp_avg_sq"].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                denominator = state["exp_avg_sq"].sqrt().add_(1e-8)
                state["master"].addcdiv_(state["exp_avg"], denominator, value=-group["lr"])
                parameter.copy_(state["master"])
                del gradient, denominator  # else they live into the next parameter's update
