"""A job server as Ray's is at the wire: it keeps what is sent, and runs nothing.

Tests say what a job has printed and how it ended (`Job`); a job follows the script of its attempt.
"""

from __future__ import annotations

import asyncio
import io
import json
import ssl
import threading
import time
import zipfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from jobs.__main__ import main

RUN = "/somewhere/small-0123456789ab"
END = json.dumps({"event": "end", "message": "finished", "code": 0})
Raw = dict[str, Any]


@dataclass
class Job:
    """A job: its submission, and what becomes of it."""

    body: Raw
    status: str = "RUNNING"
    log: str = ""
    code: int | None = None
    message: str = ""
    started: float = field(default_factory=time.time)

    def details(self) -> Raw:
        """Returns what the server says of it."""
        return {
            "type": "SUBMISSION",
            "submission_id": self.body["submission_id"],
            "status": self.status,
            "entrypoint": self.body["entrypoint"],
            "message": self.message,
            "metadata": self.body.get("metadata"),
            "runtime_env": self.body.get("runtime_env"),
            "start_time": int(1000 * self.started),
            "driver_exit_code": self.code,
        }


@dataclass
class FakeJobServer:
    """The server. token: that it asks for. play: what becomes of a job when it is submitted."""

    token: str | None = None
    play: Callable[[Job], None] = lambda job: None
    tls: ssl.SSLContext | None = None
    machine_gone: bool = False
    """No log can be had, and the job's status stays as it was."""
    jobs: dict[str, Job] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    requests: list[tuple[str, str, bytes]] = field(default_factory=list)
    stopped: list[str] = field(default_factory=list)
    logs: int = 0
    port: int = 0

    @property
    def address(self) -> str:
        """Its address."""
        return f"http{'s' if self.tls else ''}://{'localhost' if self.tls else '127.0.0.1'}:{self.port}"

    def __enter__(self) -> FakeJobServer:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, *error: object) -> None:
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def end(self, job_id: str, status: str = "SUCCEEDED", code: int | None = 0, log: str = "") -> None:
        """Has a job end."""
        job = self.jobs[job_id]
        job.log += log
        job.code = code
        job.status = status

    def sent(self, job_id: str) -> dict[str, bytes]:
        """The files of a job's `working_dir`."""
        name = self.jobs[job_id].body["runtime_env"]["working_dir"].removeprefix("gcs://")
        with zipfile.ZipFile(io.BytesIO(self.packages[name])) as archive:
            return {one: archive.read(one) for one in archive.namelist() if not one.endswith("/")}

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(300)

    async def _listen(self) -> None:
        app = web.Application(middlewares=[self._seen], client_max_size=1 << 28)
        app.add_routes(
            [
                web.get("/api/version", self._version),
                web.get("/api/packages/gcs/{name}", self._package),
                web.put("/api/packages/gcs/{name}", self._upload),
                web.post("/api/jobs/", self._submit),
                web.get("/api/jobs/", self._list),
                web.get("/api/jobs/{id}", self._job),
                web.get("/api/jobs/{id}/logs", self._logs),
                web.post("/api/jobs/{id}/stop", self._stop),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, ssl_context=self.tls)
        await site.start()
        self.port = self._runner.addresses[0][1]

    @web.middleware
    async def _seen(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.requests.append((request.method, request.path, await request.read()))
        if self.token is not None and request.headers.get("Authorization") != f"Bearer {self.token}":
            given = "Authorization" in request.headers
            return web.Response(status=403 if given else 401, text="Forbidden" if given else "Unauthorized")
        response: web.StreamResponse = await handler(request)
        return response

    async def _version(self, request: web.Request) -> web.Response:
        return web.json_response({"version": "4", "ray_version": "2.60.0", "ray_commit": "x"})

    async def _package(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["name"] in self.packages else 404)

    async def _upload(self, request: web.Request) -> web.Response:
        self.packages[request.match_info["name"]] = await request.read()
        return web.Response()

    async def _submit(self, request: web.Request) -> web.Response:
        body = await request.json()
        job_id = body["submission_id"]
        if job_id in self.jobs:
            return web.Response(status=500, text=f"ValueError: Job with submission_id {job_id} already exists.")
        job = self.jobs[job_id] = Job(body)
        self.play(job)
        return web.json_response({"job_id": job_id, "submission_id": job_id})

    async def _list(self, request: web.Request) -> web.Response:
        driver = {"type": "DRIVER", "job_id": "01000000", "status": "RUNNING", "entrypoint": "python"}
        return web.json_response([driver, *(job.details() for job in self.jobs.values())])

    async def _job(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return web.Response(status=404, text=f"Job {request.match_info['id']} does not exist")
        return web.json_response(job.details())

    async def _logs(self, request: web.Request) -> web.Response:
        self.logs += 1
        if self.machine_gone:
            return web.Response(status=500, text="ClientConnectorError: Cannot connect to host")
        return web.json_response({"logs": self.jobs[request.match_info["id"]].log})

    async def _stop(self, request: web.Request) -> web.Response:
        job_id = request.match_info["id"]
        self.stopped.append(job_id)
        self.end(job_id, "STOPPED", None)
        return web.json_response({"stopped": True})


def once_followed(server: FakeJobServer, work: Callable[[], object]) -> None:
    """Does something a moment after a log is first asked for."""

    def act() -> None:
        while not server.logs:
            time.sleep(0.01)
        time.sleep(0.2)
        work()

    threading.Thread(target=act, daemon=True).start()


def submitted(server: FakeJobServer, config: str, *more: str) -> int:
    """The exit code of `submit` to a server."""
    return main(["submit", config, "--address", server.address, *more])
