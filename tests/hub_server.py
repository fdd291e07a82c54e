"""A hub on this machine: answers the real client's requests as the Hugging Face hub does.

Only what the client library asks for when it reads a dataset or files of a model, or uploads small files to one. The
status codes, the X-Error-Code header and the shape of the JSON are the hub's.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Repo:
    files: dict[str, bytes] = field(default_factory=dict)
    gated: bool = False


class Hub(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.repos: dict[str, Repo] = {}  # "models/org/name" or "datasets/org/name"
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: Any) -> None:
        self.server.requests.append(format % args)

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), Content_Type="application/json")

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if path == "/api/repos/create":
            self._create(json.loads(body))
        elif path == "/api/validate-yaml":
            self._json({"errors": [], "warnings": []})
        elif match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(.*))?", path):
            self._api(f"{match[1]}/{match[2]}", match[3] or "", body)
        elif match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve(f"{'datasets' if match[1] else 'models'}/{match[2]}", match[3], match[4])
        else:
            self._send(404)

    do_HEAD = do_POST = do_GET  # noqa: N815

    def _create(self, wanted: dict[str, str]) -> None:
        if not self.headers.get("Authorization"):
            self._send(401, X_Error_Message="Invalid username or password.")
            return
        name = f"{wanted['organization']}/{wanted['name']}"
        self.server.repos.setdefault(f"models/{name}", Repo())
        self._json({"url": f"{self.server.url}/{name}", "name": name})

    def _commit(self, repo: Repo, key: str, body: bytes) -> None:
        for entry in map(json.loads, body.splitlines()):
            if entry["key"] == "file":
                repo.files[entry["value"]["path"]] = base64.b64decode(entry["value"]["content"])
        url = f"{self.server.url}/{key.partition('/')[2]}/commit/{COMMIT}"
        self._json({"commitUrl": url, "commitOid": COMMIT, "success": True})

    def _repo(self, key: str) -> Repo | None:
        repo = self.server.repos.get(key)
        if repo is None:  # the hub does not tell a stranger whether a repository exists
            self._send(401, X_Error_Code="RepoNotFound", X_Error_Message="Repository not found")
        return repo

    def _gate(self) -> None:
        code = 403 if self.headers.get("Authorization") else 401
        self._send(code, X_Error_Code="GatedRepo", X_Error_Message="Access to this repository is restricted")

    def _api(self, key: str, rest: str, body: bytes) -> None:
        repo = self._repo(key)
        if repo is None:
            return
        action, _, revision_path = rest.partition("/")
        if action == "auth-check":
            self._gate() if repo.gated else self._json("OK")
            return
        if action in ("preupload", "commit") and not self.headers.get("Authorization"):
            self._send(401, X_Error_Message="Invalid username or password.")
            return
        if action == "preupload":
            paths = [file["path"] for file in json.loads(body)["files"]]
            self._json({"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]})
            return
        if action == "commit":
            self._commit(repo, key, body)
            return
        revision, _, folder = revision_path.partition("/")
        if action in ("revision", "tree", "paths-info") and revision not in ("main", COMMIT):
            self._send(404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
            return
        entries = [
            {"type": "file", "path": name, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            for name, data in repo.files.items()
        ]
        folders = {name.rsplit("/", 1)[0] for name in repo.files if "/" in name}
        entries += [{"type": "directory", "path": name, "size": 0, "oid": "0" * 40} for name in sorted(folders)]
        if action == "tree":
            inside = [e for e in entries if not folder or str(e["path"]).startswith(folder + "/")]
            self._json(inside)
        elif action == "paths-info":
            wanted = json.loads(body)["paths"]
            self._json([e for e in entries if e["path"] in wanted])
        else:
            siblings = [{"rfilename": name} for name in repo.files]
            identity = key.split("/", 1)[1]
            info = {"_id": "0", "id": identity, "modelId": identity, "sha": COMMIT, "siblings": siblings, "tags": []}
            self._json(
                {**info, "private": False, "gated": "manual" if repo.gated else False, "downloads": 0, "likes": 0}
            )

    def _resolve(self, key: str, revision: str, name: str) -> None:
        repo = self._repo(key)
        if repo is None:
            return
        if revision not in ("main", COMMIT):
            self._send(404, X_Error_Code="RevisionNotFound", X_Error_Message="Invalid rev id")
        elif repo.gated:
            self._gate()
        elif name not in repo.files:
            self._send(404, X_Error_Code="EntryNotFound", X_Error_Message="Entry not found", X_Repo_Commit=COMMIT)
        else:
            data = repo.files[name]
            headers = {"ETag": f'"{hashlib.sha1(data).hexdigest()}"', "X_Repo_Commit": COMMIT, "Accept_Ranges": "bytes"}
            wanted = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or "")
            if wanted:
                first, last = int(wanted[1]), int(wanted[2] or len(data) - 1)
                part = data[first : last + 1]
                headers["Content_Range"] = f"bytes {first}-{first + len(part) - 1}/{len(data)}"
                self._send(206, part, **headers)
            else:
                self._send(200, data, **headers)


@contextmanager
def serve() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
