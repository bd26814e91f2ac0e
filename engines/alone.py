"""Runs a command in a network of its own, with loopback and nothing else:

    python -m engines.alone COMMAND ARGUMENT ...

Beam's job server for Flink, and the submitter whose workers are LOOPBACK, listen on all interfaces,
and run code that they are sent. In such a network nobody else reaches them. Linux only.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from engines.cache import UnavailableError

_NEW_USERS, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET
_GET_FLAGS, _SET_FLAGS, _UP = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP


def is_alone() -> bool:
    """Whether this process sees no interface but loopback."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def enter() -> None:
    """Move this process, which has one thread, and all that it will start.

    Raises:
      UnavailableError: the system does not permit it.
    """
    user, group = os.geteuid(), os.getegid()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(_NEW_NETWORK | (_NEW_USERS if user else 0)):
        reason = os.strerror(ctypes.get_errno())
        raise UnavailableError(f"a network with loopback only could not be made: {reason}")
    if user:  # who may do all in there, and nothing more than before outside
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack_from("16xh", fcntl.ioctl(any_socket, _GET_FLAGS, request))
        fcntl.ioctl(any_socket, _SET_FLAGS, struct.pack("16sh14x", b"lo", flags | _UP))


def main(command: list[str]) -> None:
    """Become the command; status 3 where there is no such network."""
    if not command:
        sys.exit(__doc__)
    try:
        enter()
    except (UnavailableError, OSError) as problem:
        print(problem, file=sys.stderr)
        sys.exit(3)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
