"""A small hub on the loopback address, for tests of what is fetched by its id.

It speaks as much of the Hugging Face Hub's protocol as `datasets.load_dataset` and `from_pretrained` ask of it:
repository information, file trees and file contents at a revision. Each `add` is a commit; `main` is the newest. A
client reads `HF_ENDPOINT` when it is imported, so it must run in a process of its own, whose variables `environment()`
gives.

    with LoopbackHub() as hub:
        commit = hub.add("someone/reviews", {"train.csv": b"text,label\\ngood,1\\n"}, kind="datasets")
        subprocess.run([...], env={**os.environ, **hub.environment(cache=tmp_path)})
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal, Self
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["models", "datasets"]


@dataclass
class Repository:
    """The commits of one repository: commit -> file name -> content."""

    id: str
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)

    def commit_of(self, revision: str) -> str | None:
        """The full commit that a branch or a commit names; None where there is none."""
        commit = self.branches.get(revision, revision)
        return commit if commit in self.commits else None


class LoopbackHub:
    """Serves repositories on 127.0.0.1 while the context is open. `requests` lists every `METHOD path` that came."""

    def __init__(self) -> None:
        self.repositories: dict[tuple[str, str], Repository] = {}
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, id: str, files: Mapping[str, bytes] | Path, *, kind: Kind = "models", branch: str = "main") -> str:
        """Commits `files` (names and contents, or a directory) as all that the repository holds; gives the commit."""
        if isinstance(files, Path):
            files = {p.relative_to(files).as_posix(): p.read_bytes() for p in sorted(files.rglob("*")) if p.is_file()}
        repository = self.repositories.setdefault((kind, id), Repository(id))
        commit = hashlib.sha1(f"{id} {branch} {len(repository.commits)}".encode()).hexdigest()
        repository.commits[commit] = dict(files)
        repository.branches[branch] = commit
        return commit

    def environment(self, *, cache: Path) -> dict[str, str]:
        """The variables of a process that takes this for the Hub and keeps what it fetches under `cache`."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(cache),
            "HF_HUB_DISABLE_XET": "1",  # the Hub's own transfer service has no stand-in here
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "HF_HUB_OFFLINE": "0",
            "NO_PROXY": "127.0.0.1",
        }


def _handler(hub: LoopbackHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def log_message(self, format: str, *args: object) -> None:
            """Keeps the tests' output clean: `hub.requests` is the log."""

        def _answer(self) -> None:
            hub.requests.append(f"{self.command} {self.path}")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = [unquote(part) for part in urlsplit(self.path).path.strip("/").split("/")]
            if parts[0] == "api" and parts[1] in ("models", "datasets"):
                self._api(parts[1], parts[2:], body=body)
            else:
                kind = "datasets" if parts[0] == "datasets" else "models"
                self._file(kind, parts[1:] if kind == "datasets" else parts)

        def _api(self, kind: str, parts: list[str], *, body: bytes) -> None:
            repository, rest = self._repository(kind, parts)
            if repository is None:
                return self._refuse("RepoNotFound")
            action = rest[0] if rest else "revision"
            commit = repository.commit_of(rest[1] if len(rest) > 1 else "main")
            if commit is None:
                return self._refuse("RevisionNotFound")
            files = repository.commits[commit]
            if action == "tree":
                return self._json(_entries(files, folder="/".join(rest[2:])))
            if action == "paths-info":
                wanted = parse_qs(body.decode()).get("paths", [])
                if self.headers.get("Content-Type", "").startswith("application/json"):
                    wanted = json.loads(body)["paths"]
                return self._json([entry for entry in _entries(files, folder="") if entry["path"] in wanted])
            siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            return self._json(
                {
                    "id": repository.id,
                    "sha": commit,
                    "private": False,
                    "gated": False,
                    "disabled": False,
                    "tags": [],
                    "siblings": siblings,
                }
            )

        def _file(self, kind: str, parts: list[str]) -> None:
            repository, rest = self._repository(kind, parts)
            if repository is None:
                return self._refuse("RepoNotFound")
            commit = repository.commit_of(rest[1]) if len(rest) > 1 else None
            if commit is None:
                return self._refuse("RevisionNotFound")
            content = repository.commits[commit].get("/".join(rest[2:]))
            if content is None:
                return self._refuse("EntryNotFound", commit=commit)
            return self._send(
                200, content, {"X-Repo-Commit": commit, "ETag": f'"{_oid(content)}"', "Accept-Ranges": "bytes"}
            )

        def _repository(self, kind: str, parts: list[str]) -> tuple[Repository | None, list[str]]:
            for length in (2, 1):  # `owner/name`, or a name alone as the oldest repositories have
                repository = hub.repositories.get((kind, "/".join(parts[:length])))
                if repository is not None:
                    return repository, parts[length:]
            return None, []

        def _refuse(self, code: str, *, commit: str | None = None) -> None:
            headers = {"X-Error-Code": code, **({"X-Repo-Commit": commit} if commit else {})}
            self._send(404, json.dumps({"error": code}).encode(), headers)

        def _json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(content)

    return Handler


def _oid(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


def _entries(files: Mapping[str, bytes], *, folder: str) -> list[dict[str, object]]:
    """Files below `folder` and the folders that hold them, as the tree endpoint lists them."""
    inside = {name: content for name, content in files.items() if not folder or name.startswith(f"{folder}/")}
    folders = {
        parent.as_posix() for name in inside for parent in Path(name).parents if parent.as_posix() not in (".", folder)
    }
    listed: list[dict[str, object]] = [
        {"type": "directory", "path": path, "size": 0, "oid": _oid(path.encode())} for path in sorted(folders)
    ]
    return listed + [{"type": "file", "path": n, "size": len(c), "oid": _oid(c)} for n, c in sorted(inside.items())]
