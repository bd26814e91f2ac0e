"""A network of loopback alone: what listens in it is not reached from outside, nor reaches out."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from engines import loopback
from engines.cache import UnavailableError
from engines.servers import bound

ROOT = Path(__file__).parents[2]
# Listens on all interfaces, says where, then what it reaches and sees, until its input ends.
SERVE = """
import socket, sys
from engines.loopback import open_interfaces
with socket.create_server(("", 0)) as listening:
    port = listening.getsockname()[1]
    print(port, flush=True)
    ours = socket.create_connection(("localhost", port), timeout=5).getpeername()[0]
    try:
        socket.create_connection(sys.argv[1:], timeout=5).close()
        theirs = "reached"
    except OSError as error:
        theirs = type(error).__name__
    print(ours, theirs, open_interfaces(), flush=True)
    sys.stdin.read()
"""
# As it is; and as for users who are not root, who need a namespace of users first.
ALONE = ["-m", "engines.loopback"]
AS_A_USER = [
    "-c",
    "from engines import loopback as it; unshare = it._unshare;"
    "it._unshare = lambda kinds: kinds & it._NEW_USER and unshare(kinds); it.main()",
]
each_way = pytest.mark.parametrize("alone", [ALONE, AS_A_USER])


@pytest.fixture(scope="module", autouse=True)
def _permitted() -> None:
    code = "from engines import loopback; loopback.enter()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        assert UnavailableError.__name__ in done.stderr
        pytest.skip("network namespaces are not permitted here")


@contextmanager
def serving(*before: str, port: int) -> Iterator[tuple[int, str]]:
    """A server by this command, and what it said: its port; what it reached and saw."""
    words = [sys.executable, "-c", SERVE, "localhost", str(port)]
    with subprocess.Popen(
        bound([*before, *words]),
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.stdout.readline().strip()
        process.communicate(timeout=30)
    assert process.returncode == 0


def reached(port: int) -> bool:
    """Whether something answers at the port of any address of this machine."""
    for name in {"localhost", "127.0.0.1", "0.0.0.0", socket.gethostname()}:
        with suppress(OSError), socket.create_connection((name, port), timeout=5):
            return True
    return False


@each_way
def test_nothing_passes_between_the_networks(alone: list[str]) -> None:
    with socket.create_server(("", 0)) as outside:
        theirs = outside.getsockname()[1]
        with serving(port=theirs) as (port, said):
            assert reached(port)
            assert said.startswith("127.0.0.1 reached ")
        with serving(sys.executable, *alone, port=theirs) as (port, said):
            assert said == "127.0.0.1 ConnectionRefusedError []"
            assert not reached(port)


@each_way
def test_its_user_stays_the_same(alone: list[str]) -> None:
    """Whose files are read and written."""
    words = [sys.executable, "-c", "import os; print(os.getuid(), os.getgid())"]
    here, there = (
        subprocess.run([*before, *words], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout
        for before in ([], [sys.executable, *alone])
    )
    assert here == there


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("refused", ["it._unshare = lambda kinds: False", "it.fcntl.ioctl = None"])
def test_where_it_is_not_permitted(refused: str, optional: bool) -> None:
    """At once, or with half of it done: the command runs where it was, if at all."""
    code = f"from engines import loopback as it; {refused}; it.main()"
    command = sys.executable, "-c", "import os; print(os.readlink('/proc/self/ns/net'))"
    words = [sys.executable, "-c", code, *["--if-permitted"] * optional, *command]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == (0 if optional else 3)
    assert done.stdout == f"{os.readlink('/proc/self/ns/net')}\n" * optional
    assert done.stderr == "network namespaces are not permitted here\n"


def test_interfaces_that_are_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback is none of them, whatever its number."""
    found = loopback.open_interfaces()
    assert "lo" not in found
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(7, "lo")])
    assert loopback.open_interfaces() == []
    # Under another name it counts: the flags are read.
    monkeypatch.setattr(loopback, "LOOPBACK", "another")
    assert loopback.open_interfaces() == ["lo"]
