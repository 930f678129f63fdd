"""A seccomp filter: what namespaces do not part, and what no command may do to another process.

Refused are sockets of unusual families (a network namespace leaves AF_VSOCK open, which the host of a virtual
machine, and its agents inside, answer), key rings (a login's ring is shared by all that it starts), io_uring
(whose sockets no filter sees), limits of other processes (PID 1 and the verifier are among them), and what
only reaches into the kernel: bpf, perf_event_open, userfaultfd, kexec, modules. All else is allowed.
"""

from __future__ import annotations

import errno
import platform
import socket
import struct

from tasks.sandbox.base import SandboxError

FAMILIES = (socket.AF_UNIX, socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK)

# By machine: the kernel's name of its calls (AUDIT_ARCH_*), then socket, prlimit64, and the calls refused
# altogether: add_key, request_key, keyctl, io_uring_setup, _enter and _register, bpf, perf_event_open,
# userfaultfd, kexec_load, kexec_file_load, init_module, finit_module, delete_module.
_CALLS = {
    "x86_64": (0xC000003E, 41, 302, (248, 249, 250, 425, 426, 427, 321, 298, 323, 246, 320, 175, 313, 176)),
    "aarch64": (0xC00000B7, 198, 261, (217, 218, 219, 425, 426, 427, 280, 241, 282, 104, 294, 105, 273, 106)),
}
_NUMBER, _ARCHITECTURE, _ARGUMENT = 0, 4, 16
"""Offsets in `struct seccomp_data`; of the first argument the lower half, which is what the kernel reads."""
_OTHER_ABI = 0x40000000
"""Calls of x32 start here."""


def program() -> bytes:
    """The filter, as bubblewrap's `--seccomp` reads it. Raises SandboxError on an unknown machine."""
    if platform.machine() not in _CALLS:
        raise SandboxError(
            f"sandboxes run on {' and '.join(_CALLS)}, not on {platform.machine()}: tasks.sandbox.seccomp "
            "needs its call numbers"
        )
    architecture, make_socket, set_limit, refused = _CALLS[platform.machine()]
    lines = [_load(_ARCHITECTURE), _skip_if_equal(architecture), _refuse(errno.ENOSYS)]
    lines += [_load(_NUMBER), _unless_at_least(_OTHER_ABI), _refuse(errno.ENOSYS)]
    for number in refused:
        lines += [_unless_equal(number), _refuse(errno.EPERM)]
    lines += [_unless_equal(set_limit, 3), _load(_ARGUMENT), _skip_if_equal(0), _refuse(errno.EPERM)]
    lines += [_load(_NUMBER), _unless_equal(make_socket, 2 + len(FAMILIES)), _load(_ARGUMENT)]
    lines += [_skip_if_equal(family, len(FAMILIES) - i) for i, family in enumerate(FAMILIES)]
    lines += [_refuse(errno.EAFNOSUPPORT), _line(0x06, 0x7FFF0000)]
    return b"".join(lines)


def _line(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; jumps are counted in instructions."""
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _line(0x20, offset)


def _refuse(error: int) -> bytes:
    return _line(0x06, 0x00050000 | error)


def _skip_if_equal(value: int, lines: int = 1) -> bytes:
    return _line(0x15, value, if_true=lines)


def _unless_equal(value: int, lines: int = 1) -> bytes:
    return _line(0x15, value, if_false=lines)


def _unless_at_least(value: int, lines: int = 1) -> bytes:
    return _line(0x35, value, if_false=lines)
