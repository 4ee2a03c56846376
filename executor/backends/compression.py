"""Compressed gradients as communication hooks of DistributedDataParallel, counting the bytes that they send.

fp16, bf16 and PowerSGD are torch's own hooks. int8 and top-k are ours, both with error feedback: what a step did not
send is added to the next step's gradient (Karimireddy et al., arXiv:1901.09847), so that nothing is lost, only late.
Every hook begins at the third iteration: DDP lays out its buckets anew after the first.
"""

import math
from typing import Any, Final

from executor.backends.trainer import gather_into

POWERSGD_RANK: Final = 4
"""Vogels et al., arXiv:1905.13727, section 5: rank 4 reaches the accuracy of SGD on language models."""
KEPT: Final = 0.01
"""Share of the entries that top-k sends. Lin et al., arXiv:1712.01887, section 3: 1 %, and less after a warm-up."""
GROUP: Final = 128
"""Elements under one scale: an outlier spoils no more than its group."""
PLAIN_ITERATIONS: Final = 2
HOOKS: Final = ("fp16", "bf16", "powersgd", "int8", "top-k")
_FP32 = 4


def compress(model: Any, compression: str) -> "Compressor | None":
    """Register the hook of a `gradient_compression` with a DDP module; None where gradients travel as they are."""
    if compression == "none":
        return None
    made = {
        "fp16": lambda: Cast("fp16"), "bf16": lambda: Cast("bf16"), "powersgd": PowerSgd, "int8": Int8, "top-k": TopK,
    }[compression]()  # fmt: skip
    # DDP checks the annotations of hooks it knows by name, and wants a function.
    model.register_comm_hook(made, lambda state, bucket: state.reduce(bucket))
    return made


class Compressor:
    """Reduces buckets; one per model. `sent_bytes` counts what this process has sent so far."""

    def __init__(self) -> None:
        """Nothing sent yet."""
        import torch

        self.sent_bytes = 0.0
        self._processes = torch.distributed.get_world_size()
        self._iteration = 0
        self._errors: dict[int, Any] = {}

    def reduce(self, bucket: Any) -> Any:
        """A future of the bucket's mean over all processes."""
        plain = self._iteration < PLAIN_ITERATIONS
        if bucket.is_last():
            self._iteration += 1
        return self._all_reduced(bucket) if plain else self.compressed(bucket)

    def compressed(self, bucket: Any) -> Any:
        """The same, compressed."""
        raise NotImplementedError

    def _all_reduced(self, bucket: Any) -> Any:
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        self._sent(2 * _FP32 * bucket.buffer().numel())
        return default_hooks.allreduce_hook(None, bucket)

    def _sent(self, message_bytes: float) -> None:
        """Count a message in which each process sends the (n-1)/n that is not its own."""
        self.sent_bytes += message_bytes * (self._processes - 1) / self._processes

    def _with_error(self, bucket: Any, values: Any) -> Any:
        """The values and what earlier steps left unsent."""
        error = self._errors.get(bucket.index())
        return values if error is None else values.add_(error)


class Cast(Compressor):
    """An all-reduce in 16 bits."""

    def __init__(self, kind: str) -> None:
        """Fp16 or bf16."""
        super().__init__()
        self._kind = kind

    def reduce(self, bucket: Any) -> Any:
        """Cast, all-reduce, cast back; there is no state, so it begins at once."""
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

        self._sent(2 * 2 * bucket.buffer().numel())
        # Under its own name DDP takes the bf16 hook with NCCL alone; gloo sums bf16 as well.
        hook = default_hooks.fp16_compress_hook if self._kind == "fp16" else default_hooks.bf16_compress_hook
        return hook(None, bucket)


class PowerSgd(Compressor):
    """Low-rank factors of every matrix."""

    def __init__(self) -> None:
        """State of torch's hook, which counts the elements it sends."""
        super().__init__()
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

        self._hook = powerSGD_hook.powerSGD_hook
        self._state = powerSGD_hook.PowerSGDState(
            process_group=None, matrix_approximation_rank=POWERSGD_RANK, start_powerSGD_iter=PLAIN_ITERATIONS
        )

    def reduce(self, bucket: Any) -> Any:
        """The hook has its own plain iterations."""
        before = self._state.total_numel_after_compression
        plain = self._state.iter < PLAIN_ITERATIONS
        future = self._hook(self._state, bucket)
        elements = bucket.buffer().numel() if plain else self._state.total_numel_after_compression - before
        self._sent(2 * _FP32 * elements)
        return future


class Int8(Compressor):
    """Two halves of an all-reduce, each in one byte an element and one fp32 scale for `GROUP` of them.

    A process gets its share of everybody's quantised gradients, sums it, and sends the quantised mean to all.
    Source: Wang et al., arXiv:2306.10209 section 3.3 (qgZ), with error feedback.
    """

    def compressed(self, bucket: Any) -> Any:
        """Quantise, exchange, sum, quantise, gather."""
        import torch

        buffer, n = bucket.buffer(), self._processes
        whole = math.ceil(buffer.numel() / (n * GROUP)) * n * GROUP
        values = self._with_error(bucket, torch.nn.functional.pad(buffer, (0, whole - buffer.numel())))
        codes, scales = quantised(values)
        error = values.sub_(dequantised(codes, scales))
        mean = dequantised(self._exchanged(codes), self._exchanged(scales)).view(n, -1).mean(0)
        codes, scales = quantised(mean)
        # What the second rounding lost is this process' to send again, n-fold as the mean will divide it.
        share = error.view(n, -1)[torch.distributed.get_rank()]
        share.add_(mean.sub_(dequantised(codes, scales)), alpha=n)
        self._errors[bucket.index()] = error
        total = dequantised(self._gathered(codes), self._gathered(scales))
        return _done(buffer.copy_(total[: buffer.numel()]))

    def _exchanged(self, tensor: Any) -> Any:
        import torch

        received = torch.empty_like(tensor)
        torch.distributed.all_to_all_single(received, tensor)
        self._sent(tensor.numel() * tensor.element_size())
        return received

    def _gathered(self, share: Any) -> Any:
        whole = share.new_empty(share.numel() * self._processes)
        gather_into(whole, share)
        self._sent(whole.numel() * whole.element_size())
        return whole


class TopK(Compressor):
    """The entries of largest magnitude with their places; the rest waits in the error."""

    def compressed(self, bucket: Any) -> Any:
        """Select, gather everybody's selection, add up."""
        buffer, n = bucket.buffer(), self._processes
        values = self._with_error(bucket, buffer / n)
        places = values.abs().topk(max(1, math.ceil(KEPT * values.numel()))).indices.int()
        chosen = values[places]
        values[places] = 0.0
        self._errors[bucket.index()] = values
        buffer.zero_()
        for theirs, what in zip(self._from_all(places), self._from_all(chosen), strict=True):
            buffer.index_add_(0, theirs, what)
        return _done(buffer)

    def _from_all(self, tensor: Any) -> Any:
        found = tensor.new_empty(self._processes * tensor.numel())
        gather_into(found, tensor)
        self._sent(found.numel() * found.element_size())
        return found.view(self._processes, -1)


def quantised(values: Any) -> tuple[Any, Any]:
    """Bytes and the scale of each group of `GROUP`: the largest magnitude becomes 127."""
    import torch

    groups = values.view(-1, GROUP)
    scales = groups.abs().amax(dim=1) / 127
    # A group of zeros has no scale of its own.
    codes = (groups / scales.clamp_min(torch.finfo(torch.float32).tiny).unsqueeze(1)).round_()
    return codes.to(torch.int8).view(-1), scales


def dequantised(codes: Any, scales: Any) -> Any:
    """The values that the bytes stand for."""
    return (codes.view(-1, GROUP).float() * scales.unsqueeze(1)).view(-1)


def _done(value: Any) -> Any:
    import torch

    future: Any = torch.futures.Future()
    future.set_result(value)
    return future
