"""One process of a probe: `python -m torch.distributed.run ... -m executor.probe.worker FILE`; rank 0 writes it."""

import sys
from pathlib import Path

from cost_models.specs.base import Spec
from executor.files import write_text
from executor.probe.fit import AlphaBeta, Collective


class Figures(Spec):
    """What the processes measured together. Rates are those of the slowest process."""

    processes: int
    threads: int
    torch: str
    device_memory_bytes: int | None
    """What torch sees of a GPU."""
    matmul: dict[str, dict[str, float]]
    copy_bytes_per_second: float
    host_to_device_bytes_per_second: float | None
    collectives: dict[Collective, AlphaBeta]


def main() -> None:
    """Measure."""
    import torch

    from executor.backends.trainer import local_device
    from executor.probe import collectives, rates

    device = local_device()
    torch.distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.distributed.barrier()  # all processes load the machine at once
    matmul = {kind: {shape: _least(rate, device) for shape, rate in by.items()} for kind, by in
              rates.matmul_rates(device).items()}  # fmt: skip
    to_device = rates.host_to_device_rate(device)
    cuda = device.type == "cuda"
    figures = Figures(
        processes=torch.distributed.get_world_size(),
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        device_memory_bytes=torch.cuda.get_device_properties(device).total_memory if cuda else None,
        matmul=matmul,
        copy_bytes_per_second=_least(rates.copy_rate(device), device),
        host_to_device_bytes_per_second=None if to_device is None else _least(to_device, device),
        collectives=collectives.measure(device),
    )
    if torch.distributed.get_rank() == 0:
        write_text(Path(sys.argv[1]), figures.model_dump_json(indent=2))
    torch.distributed.destroy_process_group()


def _least(value: float, device: object) -> float:
    """The slowest process' figure."""
    import torch

    found = torch.tensor([value], dtype=torch.float64, device=device)
    torch.distributed.all_reduce(found, op=torch.distributed.ReduceOp.MIN)
    return float(found)


if __name__ == "__main__":
    main()
