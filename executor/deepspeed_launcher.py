"""DeepSpeed's launcher on one node, ending with its parent: `python -m executor.deepspeed_launcher`.

It is what `deepspeed --no_ssh` starts on each node: the processes of the node, with RANK, WORLD_SIZE and the address of
the first one in their environment. Source: deepspeed `launcher/runner.py`, main; `launcher/launch.py`.
"""

import runpy
import socket
import sys
from collections.abc import Sequence
from itertools import takewhile

from executor.children import end_with_parent, tell_failures

_PORT = "--master_port"


def main() -> None:
    """Become DeepSpeed's launcher; on one node at any free port."""
    end_with_parent()
    sys.argv[1:] = with_port(sys.argv[1:])
    try:
        runpy.run_module("deepspeed.launcher.launch", run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        if isinstance(ended.code, int) and ended.code:
            tell_failures([(None, ended.code)])  # it says how the first process ended, not which
        raise


def with_port(words: Sequence[str]) -> list[str]:
    """The launcher's own words with a port, free where none is told. Words behind the script are the script's."""
    own = takewhile(lambda word: word.startswith("--"), words)
    told = any(word.startswith(f"{_PORT}=") for word in own)
    return list(words) if told else [f"{_PORT}={_free_port()}", *words]


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


if __name__ == "__main__":
    main()
