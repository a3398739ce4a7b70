"""A real Chromium without a window, driven through its own pipe: what a page shows, says and asks for.

The protocol (DevTools) is JSON messages that end with a zero byte, on the browser's file descriptors 3 and 4.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    *("--headless=new", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-extensions"),
)
OWN_SCHEMES = ("data:", "blob:", "about:")  # of what a page brings itself
SECONDS = 300  # after which it is ended, whatever happens


def find_browser() -> str | None:
    """The program, where one is installed."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab.

    Attributes:
        messages: what the console of the shown page said, and what failed in it.
        requests: addresses that it asked for, its own file first.
    """

    def __init__(self, write: int, read: int) -> None:
        self.messages: list[str] = []
        self.requests: list[str] = []
        self._write, self._read, self._rest, self._number = write, read, b"", 0
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._loaded = False
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Sends a command to the tab and returns its answer; what happened meanwhile is kept."""
        return self._call(method, session=self._session, **parameters)

    def show(self, file: Path, *, width: int = 1200, height: int = 900, dark: bool = False) -> None:
        """Opens a file in a window of this size and waits until everything is there."""
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self._loaded = False
        self.messages, self.requests = [], []
        answer = self.call("Page.navigate", url=file.resolve().as_uri())
        assert "errorText" not in answer, f"{file}: {answer['errorText']}"
        while not self._loaded:
            self._event(self._receive())

    def value(self, expression: str) -> Any:
        """What a JavaScript expression gives, as JSON's kinds."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        if "exceptionDetails" in answer:
            raise AssertionError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def point(self, selector: str, *, across: float, down: float = 0.5) -> None:
        """Moves the pointer to a place of an element, as shares of its width and height."""
        one = f"document.querySelector({json.dumps(selector)})"
        self.value(f"{one}.scrollIntoView({{behavior: 'instant'}})")
        left, top, width, height = self.value(
            f"(box => [box.left, box.top, box.width, box.height])({one}.getBoundingClientRect())"
        )
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + across * width, y=top + down * height)

    def picture(self, file: Path) -> None:
        """Writes the whole page as a PNG."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=True)
        file.write_bytes(base64.b64decode(answer["data"]))

    def printed(self, file: Path) -> None:
        """Writes the page as a PDF of A4 sheets."""
        sheet = {"paperWidth": 8.27, "paperHeight": 11.69, "printBackground": True, "preferCSSPageSize": True}
        file.write_bytes(base64.b64decode(self.call("Page.printToPDF", **sheet)["data"]))

    @property
    def fetched(self) -> list[str]:
        """Addresses beyond the page's own file that it asked for."""
        return [url for url in self.requests[1:] if not url.startswith(OWN_SCHEMES)]

    def _call(self, method: str, *, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        message |= {"sessionId": session} if session else {}
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._receive()
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise AssertionError(f"{method}: {answer['error']}")
                return dict(answer["result"])
            self._event(answer)

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            part = os.read(self._read, 1 << 16)
            if not part:
                raise AssertionError("the browser has ended")
            self._rest += part
        message, self._rest = self._rest.split(b"\0", 1)
        return dict(json.loads(message))

    def _event(self, event: dict[str, Any]) -> None:
        told = event.get("params", {})
        match event.get("method"):
            case "Page.loadEventFired":
                self._loaded = True
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.consoleAPICalled":
                self.messages.append(" ".join(str(one.get("value", one.get("description"))) for one in told["args"]))
            case "Runtime.exceptionThrown":
                self.messages.append(str(told["exceptionDetails"]))
            case "Log.entryAdded":
                self.messages.append(told["entry"]["text"])


@contextlib.contextmanager
def open_page(program: str) -> Iterator[Page]:
    """A tab of a browser of its own, with an empty profile; it is ended with everything that it started."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        pipes = [Path(place) / name for name in ("commands", "answers")]
        for pipe in pipes:
            os.mkfifo(pipe)
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        command = [program, *FLAGS, *sandbox, f"--user-data-dir={place}/profile", "about:blank"]
        script = f'exec "$@" 3<{pipes[0]} 4>{pipes[1]}'
        with (Path(place) / "log").open("wb") as log:
            browser = subprocess.Popen(["timeout", str(SECONDS), "sh", "-c", script, "sh", *command], stderr=log)
            write, read = os.open(pipes[0], os.O_WRONLY), os.open(pipes[1], os.O_RDONLY)
            try:
                page = Page(write, read)
                yield page
                page._call("Browser.close")
            finally:
                os.close(write)
                os.close(read)
                browser.terminate()
                browser.wait()
