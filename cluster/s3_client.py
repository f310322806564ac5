"""The connection to S3, configured as boto3 is, and its answers in our words.

What no waiting mends (credentials, bucket, region, rights) is a ClusterError. What does (503, resets, timeouts, cut bodies)
is tried again by `call` alone, with waits that grow, for `PATIENCE_SECONDS`; botocore makes one attempt: its quota of retries
is shared by all threads of a process, and once it is empty nobody has any patience left. What fails all the same is an
UnavailableError.
"""

from __future__ import annotations

import errno
import functools
import os
import random
import re
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cluster import ClusterError, UnavailableError

CONNECT_SECONDS, READ_SECONDS = 5, 30  # without a byte; several attempts fit into the patience
PATIENCE_SECONDS = 120.0  # with one request, from its first failure
DOUBT_SECONDS = 15.0  # the same, where the address or the credentials may be wrong, or the store is known to be away
LONGEST_WAIT = 8.0
CONNECTIONS = 32

_NOT_FOUND = {"NoSuchKey", "NotFound", "404"}
_BUSY = {
    "SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "Throttling", "ThrottlingException",
    "BadDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",  # spoilt on its way
}  # fmt: skip
_CREDENTIALS = (
    "{host} does not take these credentials ({code}); correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
)
_EXPIRED = "the credentials have expired ({code}); renew them"
_DENIED = "{host} denies {operation} to these credentials ({code}); grant it, or use others"
_REGION = "the bucket is not in region {region!r} ({code}); set AWS_REGION to {right}"
_CANNOT = "{host} cannot do what {operation} asks for ({code}); use another store"
_REFUSED = {
    "NoSuchBucket": "there is no bucket {bucket} at {host}; create it, or correct the address",
    "RequestTimeTooSkewed": "the clock of this machine is not that of {host}; set it",
    **dict.fromkeys(
        ("InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "UnrecognizedClientException"), _CREDENTIALS
    ),
    **dict.fromkeys(("ExpiredToken", "InvalidToken", "TokenRefreshRequired"), _EXPIRED),
    **dict.fromkeys(("AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "Forbidden"), _DENIED),
    **dict.fromkeys(
        ("AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", "301"), _REGION
    ),
    **dict.fromkeys(("NotImplemented", "501"), _CANNOT),
}
_DOUBTS = {  # what may pass, and what it is where nothing has ever worked
    "address": "no answer from {host}; correct AWS_ENDPOINT_URL_S3, or mend the network",
    "credentials": "no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
}
_SETTINGS = "correct the environment's AWS_... variables or ~/.aws/config"

Value = TypeVar("Value")
_answered: set[str] = set()  # endpoints that this process has had an answer of
_away: set[str] = set()  # those that it has given up since: what follows upon a failure must not take minutes once more


class Precondition(Exception):
    """The store did not do it: the object is there already, or is not the one that was meant (412)."""


def client() -> Any:
    """The process's S3 client; another one when the environment says otherwise. boto3's clients serve many threads."""
    settings = tuple(sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_")))
    with _lock:
        return _client(os.getpid(), settings)


_lock = threading.Lock()


@functools.lru_cache(maxsize=4)
def _client(_process: int, _settings: tuple[tuple[str, str], ...]) -> Any:
    import boto3
    from botocore.config import Config

    session = boto3.session.Session(region_name=os.environ.get("AWS_REGION") or None)  # boto3 knows AWS_DEFAULT_REGION only
    config = Config(
        connect_timeout=CONNECT_SECONDS,
        read_timeout=READ_SECONDS,
        max_pool_connections=CONNECTIONS,
        tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": 1},
        user_agent_extra="dmqr",
    )
    return session.client("s3", config=config)


def call(url: str, operation: Callable[[Any], Value]) -> Value:
    """What `operation` makes of the client; `url` is what it is about, for messages.

    Raises ClusterError, FileNotFoundError, Precondition, or UnavailableError when the patience is at its end; none of them
    from botocore's exception: a worker's error is told with all that is behind it, and a server's words are not for logs.
    """
    rest, since = rests(), 0.0  # since when it fails
    while True:
        where = None
        try:
            where = client()
            value = operation(where)
        except Exception as error:
            failure = _translated(error, url, where)
            if failure is None:
                raise
        else:
            _answered.add(where.meta.endpoint_url)
            _away.discard(where.meta.endpoint_url)
            return value
        endpoint = where.meta.endpoint_url if where else ""
        if not isinstance(failure, _Again):
            if where:
                _answered.add(endpoint)
            raise failure
        since = since or time.monotonic()
        doubted = failure.doubt is not None and endpoint not in _answered
        if time.monotonic() - since >= (DOUBT_SECONDS if doubted or endpoint in _away else PATIENCE_SECONDS):
            if doubted:
                raise ClusterError(f"{url}: " + _DOUBTS[str(failure.doubt)].format(host=_host(endpoint)))
            _away.add(endpoint)
            raise UnavailableError(f"{url}: {failure} for {time.monotonic() - since:.0f} s")
        if failure.doubt == "credentials":
            _client.cache_clear()  # a client keeps for good what it found when it was made
        rest()


def rests() -> Callable[[], None]:
    """Waits that grow, and differ from those of others who were refused at the same moment."""
    waits = iter([0.1 * 2**n for n in range(7)])

    def rest() -> None:
        time.sleep(next(waits, LONGEST_WAIT) * random.uniform(0.5, 1.0))

    return rest


class _Again(Exception):
    """It may work the next time. `doubt`: of _DOUBTS, what else it may be."""

    def __init__(self, words: str, doubt: str | None = None) -> None:
        super().__init__(words)
        self.doubt = doubt


def _translated(error: Exception, url: str, where: Any) -> Exception | None:
    """The exception in our words; None: not one of S3's. No text of a server is passed on beyond its code: some answer a
    wrong signature with all that was signed."""
    from botocore import exceptions as of

    host, region = (_host(where.meta.endpoint_url), where.meta.region_name) if where else ("S3", None)
    if isinstance(error, of.ClientError):
        return _refused(error, url, host, region)
    known: list[tuple[Any, Exception]] = [
        (of.SSLError, ClusterError(
            f"{url}: no secure connection to {host} ({_short(error)}); set AWS_CA_BUNDLE, or correct the address"
        )),
        (of.ParamValidationError | of.UnsupportedS3ArnError, ClusterError(
            f"{url}: is not an address of S3; write s3://BUCKET/FOLDER"
        )),
        (of.PartialCredentialsError, ClusterError(f"{url}: {_short(error)}; {_SETTINGS}")),
        (
            of.NoCredentialsError | of.CredentialRetrievalError | of.TokenRetrievalError | of.MetadataRetrievalError,
            _Again("no credentials for S3", "credentials"),
        ),
        (
            of.EndpointConnectionError | of.ConnectTimeoutError | of.ProxyConnectionError,
            _Again(f"no answer from {host}", "address"),
        ),
        (
            of.HTTPClientError | of.IncompleteReadError | of.FlexibleChecksumError | of.ChecksumError,
            _Again(f"{host} broke off ({type(error).__name__})"),
        ),
        (of.BotoCoreError, ClusterError(f"{url}: {_short(error)}; {_SETTINGS}")),
    ]  # fmt: skip
    if where is None and isinstance(error, ValueError):  # an address that is none, a file that is no config
        return ClusterError(f"{url}: {_short(error)}; {_SETTINGS}")
    return next((failure for kinds, failure in known if isinstance(error, kinds)), None)


def _refused(error: Any, url: str, host: str, region: str | None) -> Exception:
    answer = error.response.get("ResponseMetadata", {})
    code, status = str(error.response.get("Error", {}).get("Code", "")), int(answer.get("HTTPStatusCode", 0))
    if code in _BUSY or (status >= 500 and status != 501) or status in (408, 429):
        return _Again(f"{host} answers {status} {code}")
    if status == 412:
        return Precondition(url)
    words = _REFUSED.get(code) or _REFUSED.get(str(status))
    if words is not None:
        right = error.response.get("Error", {}).get("Region") or answer.get("HTTPHeaders", {}).get("x-amz-bucket-region")
        named = {"bucket": "/".join(url.split("/", 3)[:3]), "host": host, "code": code, "operation": error.operation_name}
        return ClusterError(f"{url}: " + words.format(**named, region=region, right=repr(right) if right else "its own"))
    if code in _NOT_FOUND or status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object", url)
    return OSError(errno.EIO, f"{host} answers {status} {code} to {error.operation_name}", url)


def _host(endpoint: str) -> str:
    parts = urlsplit(endpoint)  # without what may stand before an @
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _short(error: Exception) -> str:
    """One line, without what may stand before an @ in an address."""
    return re.sub(r"//[^/\s]*@", "//", " ".join(str(error).split()))[:200].rstrip(".")
