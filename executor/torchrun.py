"""torchrun that ends with its parent and tells which processes failed: `python -m executor.torchrun`."""

import runpy

from executor.children import end_with_parent, tell_failures


def main() -> None:
    """Become torchrun."""
    end_with_parent()
    try:
        runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
    except Exception as error:
        if (stopped := getattr(error, "sigval", None)) is not None:  # torchrun's SignalException: asked to stop
            raise SystemExit(128 + int(stopped)) from None
        # Not the first alone: torchrun looks at all of them now and then, and takes the lowest rank of those it finds.
        failures = getattr(error, "failures", {})
        tell_failures([(rank, failure.exitcode) for rank, failure in sorted(failures.items())])
        raise


if __name__ == "__main__":
    main()
