"""torchrun that ends with its parent and tells which process failed first: `python -m executor.torchrun`."""

import runpy

from executor.children import end_with_parent, tell_failure


def main() -> None:
    """Become torchrun."""
    end_with_parent()
    try:
        runpy.run_module("torch.distributed.run", run_name="__main__", alter_sys=True)
    except Exception as error:
        first = getattr(error, "get_first_failure", None)
        if first is not None:
            rank, failure = first()
            tell_failure(rank, failure.exitcode)
        raise


if __name__ == "__main__":
    main()
