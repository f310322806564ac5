"""A hub of models at the wire: the kinds of requests that huggingface_hub sends for a public repository."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"


class FakeHub:
    """Serves the files of a folder as one repository, whatever its name; `fetched` are those that were."""

    def __init__(self, folder: Path) -> None:
        files = {str(f.relative_to(folder)): f.read_bytes() for f in sorted(folder.rglob("*")) if f.is_file()}
        self.fetched: list[str] = []
        hub = self

        class Answers(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(body=True)

            def do_HEAD(self) -> None:
                self._answer(body=False)

            def _answer(self, *, body: bool) -> None:
                path = self.path.partition("?")[0]
                if "/tree/" in path:
                    tree = [{"type": "file", "oid": "0" * 40, "size": len(data), "path": name} for name, data in files.items()]
                    self._send(200, json.dumps(tree).encode(), body=body)
                    return
                if path.startswith("/api/models/"):
                    said = {"id": "some/model", "modelId": "some/model", "sha": COMMIT, "private": False, "tags": [],
                            "downloads": 0, "siblings": [{"rfilename": name} for name in files]}  # fmt: skip
                    self._send(200, json.dumps(said).encode(), body=body)
                    return
                name = path.partition(f"/resolve/{COMMIT}/")[2]
                if name not in files:
                    self._send(404, b"", body=body, **{"X-Error-Code": "EntryNotFound"})
                    return
                if body:
                    hub.fetched.append(name)
                tag = hashlib.sha1(files[name]).hexdigest()
                self._send(200, files[name], body=body, **{"ETag": f'"{tag}"', "X-Repo-Commit": COMMIT})

            def _send(self, status: int, data: bytes, *, body: bool, **headers: str) -> None:
                self.send_response(status)
                for key, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                if body:
                    self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> FakeHub:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
