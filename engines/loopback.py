"""A network of its own for a command: loopback, and nothing else.

    python -m engines.loopback COMMAND ...

What the command starts may listen on all interfaces, as Prism, job servers and LOOPBACK workers do:
nothing outside can reach it, nor does it reach anything outside. By network namespaces of Linux;
nobody has to be root. Where they are not permitted the exit status is 3; with --if-permitted, first
of all words, the command then runs without.
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

_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # of sched.h
_GET_FLAGS, _SET_FLAGS = 0x8913, 0x8914  # of sockios.h
_UP, _RUNNING = 0x1, 0x40  # of if.h
_REQUEST = "16sh14x"  # an ifreq: name, flags
LOOPBACK = "lo"


def enter() -> None:
    """Move this process, which has one thread, to a network of its own.

    Raises:
      UnavailableError: that is not permitted here, and nothing has changed.
    """
    # Tried out first, as half of it would leave no network at all.
    child = os.fork()
    if not child:
        try:
            _enter()
            os._exit(0)
        except BaseException:
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        raise UnavailableError("network namespaces are not permitted here")
    _enter()


def _enter() -> None:
    user, group = os.getuid(), os.getgid()
    if not _unshare(_NEW_NETWORK):  # as root may; others need a namespace of users first
        if not _unshare(_NEW_USER | _NEW_NETWORK):
            raise PermissionError("unshare")
        for name, text in (
            ("setgroups", "deny"),  # else groups may not be mapped
            ("uid_map", f"{user} {user} 1"),
            ("gid_map", f"{group} {group} 1"),
        ):
            Path("/proc/self", name).write_text(text)
    with socket.socket() as any_socket:
        request = struct.pack(_REQUEST, LOOPBACK.encode(), _UP | _RUNNING)
        fcntl.ioctl(any_socket, _SET_FLAGS, request)


def open_interfaces() -> list[str]:
    """Interfaces that are up, but for loopback."""
    with socket.socket() as any_socket:

        def flags(name: str) -> int:
            request = struct.pack(_REQUEST, name.encode(), 0)
            answer = fcntl.ioctl(any_socket, _GET_FLAGS, request)
            return int(struct.unpack(_REQUEST, answer)[1])

        names = [name for _, name in socket.if_nameindex() if name != LOOPBACK]
        return [name for name in names if flags(name) & _UP]


def _unshare(kinds: int) -> bool:
    unshare = getattr(ctypes.CDLL(None), "unshare", None)  # Linux has it
    return unshare is not None and unshare(kinds) == 0


def main() -> None:
    """The command."""
    words = sys.argv[1:]
    needed = words[:1] != ["--if-permitted"]
    command = words if needed else words[1:]
    if not command:
        sys.exit("usage: python -m engines.loopback [--if-permitted] COMMAND ...")
    try:
        enter()
    except UnavailableError as missing:
        print(missing, file=sys.stderr)
        if needed:
            sys.exit(3)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
