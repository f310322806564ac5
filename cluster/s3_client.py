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

NOT_FOUND = {"NoSuchKey", "NotFound", "404"}
_CREDENTIALS = {
    "InvalidAccessKeyId", "SignatureDoesNotMatch", "XAdminUserNotFound", "ExpiredToken", "InvalidToken", "TokenRefreshRequired",
    "UnrecognizedClientException", "InvalidClientTokenId",
}  # fmt: skip
_DENIED = {"AccessDenied", "AllAccessDisabled", "AccountProblem", "403", "Forbidden"}
_REGION = {"AuthorizationHeaderMalformed", "PermanentRedirect", "IllegalLocationConstraintException", "301"}
_BUSY = {
    "SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "Throttling", "ThrottlingException",
    "NoSuchUpload",  # of parts that were joined already: the answer to the first attempt was lost
}  # fmt: skip

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
        raise ClusterError(f"S3: {_short(error)}; correct the environment's AWS_... variables or ~/.aws/config") from error


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
                raise ClusterError(
                    f"{url}: {failure.words}; is that the address (AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL), and is the network there?"
                ) from error
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

    if isinstance(error, Boto3Error | of.BotoCoreError) and isinstance(error.__cause__ or error.__context__, of.ClientError):
        error = error.__cause__ or error.__context__  # type: ignore[assignment]
    host = _host(endpoint)
    if isinstance(error, of.ClientError):
        return _refused(error, url, host, region)
    if isinstance(error, of.NoCredentialsError | of.PartialCredentialsError | of.CredentialRetrievalError | of.TokenRetrievalError):
        return ClusterError(f"{url}: no credentials for S3; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE")
    if isinstance(error, of.SSLError):
        return ClusterError(f"{url}: no secure connection to {host}: {_short(error)}; set AWS_CA_BUNDLE, or correct the address")
    if isinstance(error, of.EndpointConnectionError | of.ConnectTimeoutError | of.ProxyConnectionError):
        return _Again(f"no answer from {host}", unreachable=True)
    if isinstance(error, of.HTTPClientError | of.IncompleteReadError | of.FlexibleChecksumError | of.ChecksumError):
        return _Again(f"{host} broke off ({type(error).__name__})")
    if isinstance(error, of.ParamValidationError | of.InvalidS3AddressingStyleError | of.UnsupportedS3ArnError):
        return ClusterError(f"{url}: is not an address of S3; write s3://BUCKET/FOLDER")
    if isinstance(error, of.BotoCoreError | Boto3Error):
        if "RetriesExceeded" in type(error).__name__ or "RetriesExceeded" in str(error):
            return _Again(f"{host} broke off")
        return ClusterError(f"{url}: {_short(error)}; correct the environment's AWS_... variables or ~/.aws/config")
    return None


def _refused(error: Any, url: str, host: str, region: str | None) -> Exception:
    code = str(error.response.get("Error", {}).get("Code", ""))
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    bucket = "/".join(url.split("/", 3)[:3])
    if code == "NoSuchBucket":
        return ClusterError(f"{url}: there is no bucket {bucket} at {host}; create it, or correct the address")
    if code in _CREDENTIALS:
        return ClusterError(
            f"{url}: {host} does not take these credentials ({code}); correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        )
    if code in _BUSY:
        return _Again(f"{host} answers {status} {code}")
    if code in NOT_FOUND or status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object", url)
    if code == "RequestTimeTooSkewed":
        return ClusterError(f"{url}: the clock of this machine is not that of {host}; set it")
    if code in _DENIED:
        return ClusterError(f"{url}: {host} denies {error.operation_name} to these credentials ({code}); grant it, or use others")
    if code in _REGION:
        named = error.response.get("Error", {}).get("Region")
        named = named or error.response.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("x-amz-bucket-region")
        right = f"{named!r}" if named else "its own"
        return ClusterError(f"{url}: the bucket is not in region {region!r} ({code}); set AWS_REGION to {right}")
    if status == 412 or code == "PreconditionFailed":
        return Precondition(url)
    if code == "NotImplemented" or status == 501:
        return ClusterError(f"{url}: {host} cannot do what {error.operation_name} asks for ({code}); use another store")
    if status >= 500 or status in (408, 429):
        return _Again(f"{host} answers {status} {code}")
    return OSError(errno.EIO, f"{host} answers {status} {code} to {error.operation_name}", url)


def _host(endpoint: str) -> str:
    parts = urlsplit(endpoint)  # without what may stand before an @
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:200].rstrip(".")
