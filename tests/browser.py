"""A headless Chromium, driven through a pipe: what a page says, and how it looks."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def found() -> str | None:
    """The command, if one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """One page of a browser while the block lasts. It asks this machine alone.

    Attributes:
      requests: the addresses that pages asked for.
      errors: what their scripts, and the browser's console, complained about.
    """

    def __init__(self, command: str) -> None:
        self._command = command
        self.requests: list[str] = []
        self.errors: list[str] = []

    def __enter__(self) -> Browser:
        self._profile = tempfile.TemporaryDirectory()
        to_read, self._out = os.pipe()
        self._in, to_write = os.pipe()
        flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--remote-debugging-pipe",
            f"--user-data-dir={self._profile.name}",
            "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        ]
        # The browser reads its orders from descriptor 3 and answers at 4.
        moved = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'
        words = ["bash", "-c", moved, "bash", str(to_read), str(to_write), self._command, *flags]
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            pass_fds=(to_read, to_write),
        )
        os.close(to_read)
        os.close(to_write)
        self._buffer, self._number, self._session = b"", 0, None
        made = self._ask("Target.createTarget", url="about:blank")
        attached = self._ask("Target.attachToTarget", targetId=made["targetId"], flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self._ask(f"{domain}.enable")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._out)
        os.close(self._in)
        shutil.rmtree(self._profile.name, ignore_errors=True)

    def open(self, address: str, width: int, height: int, dark: bool = False) -> None:
        """Show a page in a window of this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self._ask("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._ask("Emulation.setEmulatedMedia", features=[scheme])
        self._ask("Page.navigate", url=address)

    def says(self, expression: str) -> Any:
        """What a JavaScript expression gives."""
        answer = self._ask("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression: str, seconds: float = 30) -> Any:
        """What it gives as soon as that is true of it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if value := self.says(expression):
                return value
            time.sleep(0.1)
        raise AssertionError(f"not true in {seconds} s: {expression}; {self.errors}")

    def picture(self, path: Path) -> None:
        """The whole page, also what lies below the window."""
        taken = self._ask("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(taken["data"]))

    def _ask(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]
            self._note(answer)

    def _next(self) -> Any:
        while b"\0" not in self._buffer:
            more = os.read(self._in, 1 << 16)
            assert more, "the browser has gone"
            self._buffer += more
        whole, _, self._buffer = self._buffer.partition(b"\0")
        return json.loads(whole)

    def _note(self, event: Any) -> None:
        method, said = event.get("method"), event.get("params", {})
        if method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(said["exceptionDetails"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] == "error":
            self.errors.append(said["entry"]["text"])
