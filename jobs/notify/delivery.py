"""Delivers one message: by HTTP, or to a command. What fails is said without address, body or answer: they may be secret."""

from __future__ import annotations

import contextlib
import http.client
import os
import shutil
import signal
import socket
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import IO, Any
from urllib.parse import urlsplit

from jobs.config.notify import NotifySettings

_PASSING = frozenset({408, 425, 429})  # and 5xx: statuses that another try may not get


class NotDeliveredError(Exception):
    """A message was not delivered; its text says why, in a few words.

    Attributes:
        passing: Whether another try may succeed.
    """

    def __init__(self, words: str, *, passing: bool = True) -> None:
        """Sets the words, and whether another try may succeed."""
        super().__init__(words)
        self.passing = passing


def deliver(settings: NotifySettings, body: bytes) -> None:
    """Delivers a message, within about `timeout_seconds`.

    Raises:
        NotDeliveredError: It was not.
    """
    if settings.webhook_env is not None:
        try:
            address = webhook_address(settings.webhook_env)
        except ValueError as error:
            raise NotDeliveredError(str(error), passing=False) from None
        _post(address, body, settings.timeout_seconds)
    else:
        _call(settings.command or (), body, settings.timeout_seconds)


def problems(settings: Sequence[NotifySettings]) -> tuple[str, ...]:
    """Returns, in a line each, which of them cannot be told anything as this process's environment is."""
    found = []
    for one in settings:
        if one.webhook_env is not None:
            try:
                webhook_address(one.webhook_env)
            except ValueError as error:
                found.append(f"notify: {error}, until then nobody is told there")
        elif one.command and shutil.which(one.command[0]) is None:
            found.append(
                f"notify: there is no program {one.command[0]}; correct notify.command, until then nobody is told there"
            )
    return tuple(found)


def webhook_address(variable: str) -> str:
    """Returns the address in an environment variable.

    Raises:
        ValueError: There is none; the message does not repeat what is there.
    """
    address = os.environ.get(variable, "").strip()
    if not address:
        raise ValueError(f"the environment variable {variable} (webhook_env) is not set or empty; set it to the address")
    try:
        parts = urlsplit(address)
        whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0 and parts.username is None
    except ValueError:
        whole = False
    if not whole or not (address.isascii() and address.isprintable()) or " " in address:
        raise ValueError(
            f"the environment variable {variable} (webhook_env) holds no http address; set it to one like https://..."
        )
    return address


class _Redirected(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: the message, which is for one address, would go to another."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: http.client.HTTPMessage, newurl: str
    ) -> None:
        """Returns None: the redirect is an error."""


def _post(address: str, body: bytes, seconds: float) -> None:
    headers = {"Content-Type": "application/json; charset=utf-8", "User-Agent": "dmqr"}
    request = urllib.request.Request(address, body, headers, method="POST")
    try:
        with urllib.request.build_opener(_Redirected).open(request, timeout=seconds) as answer:
            status = answer.status
    except urllib.error.HTTPError as error:
        status = error.code
        error.close()
    except (OSError, http.client.HTTPException, ValueError) as error:  # URLError is an OSError
        raise NotDeliveredError(_why(error, seconds)) from None
    if 300 <= status < 400:
        raise NotDeliveredError(f"HTTP {status}: redirects are not followed", passing=False)
    if status >= 400:
        raise NotDeliveredError(f"HTTP {status}", passing=status >= 500 or status in _PASSING)


def _why(error: BaseException, seconds: float) -> str:
    """Returns what an exception says, without its text, in which the address may stand."""
    reason: Any = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return f"no answer within {seconds:g} s"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted ({reason.verify_message})"
    if isinstance(reason, socket.gaierror):
        return "its name is not known"
    if isinstance(reason, OSError) and reason.strerror:
        return reason.strerror
    return f"no HTTP answer ({type(reason if isinstance(reason, BaseException) else error).__name__})"


def _call(command: Sequence[str], body: bytes, seconds: float) -> None:
    """Runs a command in a session of its own, so that what it has started ends with it when it takes too long."""
    try:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True, close_fds=True
        )
    except (OSError, ValueError) as error:
        raise NotDeliveredError(
            f"it cannot be started: {getattr(error, 'strerror', None) or type(error).__name__}", passing=False
        ) from None
    try:
        process.communicate(body, timeout=seconds)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise NotDeliveredError(f"it did not end within {seconds:g} s, and was killed") from None
    if process.returncode:
        ended = f"signal {-process.returncode}" if process.returncode < 0 else f"exit code {process.returncode}"
        raise NotDeliveredError(f"it ended with {ended}")
