"""`python -m benchmarks.recalibration run | report`."""

import argparse
import sys
import time
from pathlib import Path

from benchmarks.recalibration import measuring, rows
from benchmarks.recalibration.configurations import planned

FOLDER = Path(__file__).parent / "data"


def run(folder: Path, *, tiny: bool, most: int | None) -> int:
    """Measure what is not measured yet; exits 1 when a run failed."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "rows.jsonl"
    done = {row.name for row in rows.read(path) if row.outcome == "ok"}
    left = [one for one in planned(tiny=tiny) if one.name not in done][:most]
    failed = 0
    with (folder / "run.log").open("a", encoding="utf-8") as log:
        pool = measuring.pool(folder / "probe.yaml", log)
        for one in left:
            started = time.perf_counter()
            row = measuring.measure(one, pool, log)
            rows.append(path, row)
            failed += row.outcome != "ok"
            shown = "-" if row.step_seconds is None else f"{row.step_seconds:.3f} s"
            print(f"{one.name}: {row.outcome} {shown}, took {time.perf_counter() - started:.0f} s", flush=True)
    return 1 if failed else 0


def main(arguments: list[str] | None = None) -> int:
    """Dispatch."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.recalibration", description=__doc__)
    parser.add_argument("what", choices=("run", "report"))
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of probe.yaml and rows.jsonl")
    parser.add_argument("--most", type=int, help="measure no more than so many configurations now")
    parser.add_argument("--tiny", action="store_true", help="two toy configurations: try the script")
    options = parser.parse_args(arguments)
    try:
        if options.what == "run":
            return run(options.data, tiny=options.tiny, most=options.most)
        from benchmarks.recalibration.page import write  # noqa: PLC0415  imports scipy

        return write(options.data)
    except KeyboardInterrupt:
        sys.stderr.write("stopped; start again to go on\n")
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
