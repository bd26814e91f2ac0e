"""A network of its own: loopback and nothing else, out of everybody's reach."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from engines import alone

ROOT = Path(__file__).parents[2]
INSIDE = """
import socket, sys
from engines import alone
print(alone.is_alone(), flush=True)
port = int(sys.argv[1])
try:
    socket.create_connection(("127.0.0.1", port), timeout=1)
    print("outside was reached", flush=True)
except OSError:
    print("outside is out of reach", flush=True)
server = socket.create_server(("0.0.0.0", port))
socket.create_connection(("127.0.0.1", port), timeout=5)
print("inside answers", flush=True)
sys.stdin.read()
"""


def test_nobody_reaches_what_runs_there() -> None:
    with socket.create_server(("127.0.0.1", 0)) as outside:
        port = outside.getsockname()[1]
        command = [sys.executable, "-m", "engines.alone", sys.executable, "-c", INSIDE, str(port)]
        with subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin
            assert process.stdout
            said = [process.stdout.readline().strip() for _ in range(3)]
            if not said[0]:
                assert process.stderr
                pytest.skip(process.stderr.read().strip())
            assert said == ["True", "outside is out of reach", "inside answers"]
            outside.close()
            with pytest.raises(OSError, match="refused"):
                socket.create_connection(("127.0.0.1", port), timeout=1)
            process.stdin.close()
            assert process.wait(timeout=10) == 0


def test_where_there_is_none_the_status_is_3(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(alone, "enter", refused)
    with pytest.raises(SystemExit) as ended:
        alone.main(["true"])
    assert ended.value.code == 3
    assert "not permitted" in capsys.readouterr().err
