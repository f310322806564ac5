"""The connection to S3, configured as boto3 is, and its answers in our words.

What no waiting mends (credentials, bucket, region, rights) is a ClusterError. What does (503, resets, timeouts, cut bodies)
is tried again: by botocore a few times within seconds, then by `call`, which also covers bodies that break off while they
are read and the quota that botocore's retries have. What is left then is an OSError, as of a disk.
"""

from __future__ import annotations

import errno
import functools
import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cluster import ClusterError

CONNECT_SECONDS, READ_SECONDS = 10, 60
ATTEMPTS = 6  # botocore's own, waiting up to 1, 2, 4, 8, 16 s in between
ROUNDS = 5  # of those
CONNECTIONS = 32

_NOT_FOUND = {"NoSuchKey", "NotFound", "404"}
_BUSY = {
    "SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "Throttling", "ThrottlingException",
    "NoSuchUpload",  # of parts that were joined already: the answer to the first attempt was lost
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
_SETTINGS = "correct the environment's AWS_... variables or ~/.aws/config"

Value = TypeVar("Value")
_answered: set[str] = set()  # endpoints that this process has had an answer of


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
    from botocore.exceptions import BotoCoreError

    try:
        session = boto3.session.Session(region_name=os.environ.get("AWS_REGION") or None)  # boto3 knows AWS_DEFAULT_REGION only
        said = session._session.get_scoped_config()
        own: dict[str, Any] = {"mode": "standard", "total_max_attempts": ATTEMPTS}
        if "AWS_RETRY_MODE" in os.environ or "retry_mode" in said:
            del own["mode"]
        if "AWS_MAX_ATTEMPTS" in os.environ or "max_attempts" in said:
            del own["total_max_attempts"]
        config = Config(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=READ_SECONDS,
            max_pool_connections=CONNECTIONS,
            tcp_keepalive=True,
            retries=own or None,
            user_agent_extra="dmqr",
        )
        return session.client("s3", config=config)
    except (BotoCoreError, ValueError) as error:  # no such profile, a file that is no config, an address that is none
        raise ClusterError(f"S3: {_short(error)}; {_SETTINGS}") from error


def call(url: str, operation: Callable[[Any], Value]) -> Value:
    """What `operation` makes of the client; `url` is what it is about, for messages.

    Raises ClusterError, FileNotFoundError, Precondition, or OSError after all attempts.
    """
    where = client()
    endpoint = str(where.meta.endpoint_url)
    for last in [False] * (ROUNDS - 1) + [True]:
        try:
            value = operation(where)
        except Exception as error:
            failure = _translated(error, url, endpoint, where.meta.region_name)
            if failure is None:
                raise
            if not isinstance(failure, _Again):
                _answered.add(endpoint)
                raise failure from error
            if endpoint not in _answered and failure.unreachable:
                raise ClusterError(f"{url}: {failure.words}; correct AWS_ENDPOINT_URL_S3, or mend the network") from error
            if last:
                raise OSError(errno.EIO, f"{failure.words}, after many attempts", url) from error
        else:
            _answered.add(endpoint)
            return value
        _rest()
    raise AssertionError


def rests() -> Callable[[], None]:
    """Waits that grow, for a loop of the caller's own."""
    waits = iter([0.05 * 2**n for n in range(8)])

    def rest() -> None:
        time.sleep(next(waits, 8.0) * random.uniform(0.5, 1.0))

    return rest


def _rest() -> None:
    time.sleep(random.uniform(0.5, 2.0))


class _Again(Exception):
    """It may work the next time. `unreachable`: nobody answered."""

    def __init__(self, words: str, unreachable: bool = False) -> None:
        super().__init__(words)
        self.words, self.unreachable = words, unreachable


def _translated(error: Exception, url: str, endpoint: str, region: str | None) -> Exception | None:
    """The exception in our words; None: not one of S3's. No text of a server is passed on beyond its code: some answer a
    wrong signature with all that was signed."""
    from boto3.exceptions import Boto3Error
    from botocore import exceptions as of

    behind = error.__cause__ or error.__context__
    if isinstance(error, Boto3Error) and isinstance(behind, of.ClientError | of.BotoCoreError):
        error = behind
    host = _host(endpoint)
    if isinstance(error, of.ClientError):
        return _refused(error, url, host, region)
    again: list[tuple[Any, _Again]] = [
        (
            of.EndpointConnectionError | of.ConnectTimeoutError | of.ProxyConnectionError,
            _Again(f"no answer from {host}", unreachable=True),
        ),
        (
            of.HTTPClientError | of.IncompleteReadError | of.FlexibleChecksumError | of.ChecksumError | Boto3Error,
            _Again(f"{host} broke off ({type(error).__name__})"),
        ),
    ]
    never = [
        (of.SSLError, f"no secure connection to {host} ({_short(error)}); set AWS_CA_BUNDLE, or correct the address"),
        (
            of.NoCredentialsError | of.PartialCredentialsError | of.CredentialRetrievalError | of.TokenRetrievalError,
            "no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE",
        ),
        (of.ParamValidationError | of.UnsupportedS3ArnError, "is not an address of S3; write s3://BUCKET/FOLDER"),
    ]
    words = next((words for kinds, words in never if isinstance(error, kinds)), None)
    if words is not None:
        return ClusterError(f"{url}: {words}")
    for kinds, failure in again:
        if isinstance(error, kinds):
            return failure
    return ClusterError(f"{url}: {_short(error)}; {_SETTINGS}") if isinstance(error, of.BotoCoreError) else None


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
    return " ".join(str(error).split())[:200].rstrip(".")
