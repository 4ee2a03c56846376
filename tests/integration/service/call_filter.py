"""Run a command under systemd's `SystemCallFilter=`: `python -m ...call_filter LINE... -- COMMAND...`.

The sets (@system-service, ...) are those of the systemd of this machine; the filter is loaded by libseccomp, as
systemd does it. systemd.exec(5): the first line says whether calls are allowed or denied, further ones add or take.
"""

import ctypes
import errno
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence

ALLOW, ERRNO = 0x7FFF0000, 0x00050000
"""SCMP_ACT_ALLOW, SCMP_ACT_ERRNO (seccomp.h)."""
ALWAYS = "@default"
"""What systemd allows beside every allow-list."""


def calls(name: str) -> Iterator[str]:
    """The system calls of a set, those of its subsets included; of a call: itself."""
    if not name.startswith("@"):
        yield name
        return
    done = subprocess.run(["systemd-analyze", "syscall-filter", name], capture_output=True, text=True, check=True)
    for line in done.stdout.splitlines()[1:]:
        if (word := line.strip()) and not word.startswith("#"):
            yield from calls(word)


def allowed(lines: Sequence[str]) -> set[str]:
    """What is left."""
    found = set(calls(ALWAYS))
    assert not lines[0].startswith("~"), "only allow-lists are understood"
    for line in lines:
        own = {call for name in line.removeprefix("~").split() for call in calls(name)}
        found = found - own if line.startswith("~") else found | own
    return found


def load(names: set[str]) -> None:
    """Refuse every other call with EPERM, from now on and in every child."""
    library = ctypes.CDLL("libseccomp.so.2", use_errno=True)
    library.seccomp_init.restype = ctypes.c_void_p
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(ERRNO | errno.EPERM)))
    for name in names:
        number = library.seccomp_syscall_resolve_name(name.encode())
        if number >= 0:  # others are of other processors
            assert library.seccomp_rule_add(context, ctypes.c_uint32(ALLOW), number, 0) == 0, name
    assert library.seccomp_load(context) == 0


if __name__ == "__main__":
    end = sys.argv.index("--")
    load(allowed(sys.argv[1:end]))
    os.execvp(sys.argv[end + 1], sys.argv[end + 1 :])
