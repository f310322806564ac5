"""The S3 client, configured as boto3 is, its retries, its errors as messages for people, and the count of its traffic.

Permanent errors (credentials, bucket, region, permissions) are a ClusterError. Transient ones (503, resets, timeouts, cut
bodies) are retried by `call` alone, with backoff, for `RETRY_SECONDS`, and are an UnavailableError after that, which ends the
run with exit code 1; the same command goes on. botocore makes one attempt: all threads of a process share its retry quota,
and once that is empty no request is retried.

Traffic is requests by kind, as stores charge for them, and bytes (Parquet and DuckDB read through this client, too). Whatever
is put on the wire counts: each attempt of a retried request is one. Not counted: requests for credentials, and what a process
sends after it was asked for the last time.
"""

import errno
import functools
import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar
from urllib.parse import urlsplit

from cluster.errors import ClusterError, UnavailableError
from cluster.outages import Transient, answered, retried

CONNECT_SECONDS, READ_SECONDS = 5, 30  # READ_SECONDS: without a byte; several attempts fit into RETRY_SECONDS
RETRY_SECONDS = 120.0  # of one request, from its first failure
SHORT_RETRY_SECONDS = 15.0  # the same, while the address or the credentials may be wrong, or after the store was given up
CONNECTIONS = 32

_KINDS = {  # operation -> kind of request; others are charged for as `get`
    "PutObject": "put", "HeadObject": "head", "ListObjectsV2": "list", "DeleteObject": "delete",
    "CreateMultipartUpload": "multipart", "UploadPart": "multipart", "CompleteMultipartUpload": "multipart",
    "AbortMultipartUpload": "delete",  # free of charge, as deleting is
}  # fmt: skip
_NOT_FOUND = {"NoSuchKey", "NotFound", "404"}
_BUSY = {
    "SlowDown", "RequestTimeout", "ConditionalRequestConflict", "OperationAborted", "Throttling", "ThrottlingException",
    "BadDigest", "IncompleteBody", "XAmzContentChecksumMismatch", "XAmzContentSHA256Mismatch",  # corrupted on the way
}  # fmt: skip
_CREDENTIALS = "{host} rejects these credentials ({code}); correct AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_EXPIRED = "the credentials have expired ({code}); renew them"
_DENIED = "{host} denies {operation} to these credentials ({code}); grant it, or use others"
_REGION = "the bucket is not in region {region!r} ({code}); set AWS_REGION to {right}"
_CANNOT = "{host} cannot do what {operation} asks for ({code}); use another store"
_REFUSED = {
    "NoSuchBucket": "there is no bucket {bucket} at {host}; create it, or correct the address",
    "RequestTimeTooSkewed": "the clock of this machine differs from that of {host}; set the clock",
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
_NO_CREDENTIALS = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
_ADDRESS = "correct AWS_ENDPOINT_URL_S3, or repair the network"
_SETTINGS = "correct the environment's AWS_... variables or ~/.aws/config"

Value = TypeVar("Value")
_answered: set[str] = set()  # endpoints that have answered this process
_unavailable: set[str] = set()  # given up since: the next requests must not take minutes again


class PreconditionFailed(Exception):
    """412: the object exists already, or is another version."""


def client() -> Any:
    """Returns the process's S3 client, a new one when the AWS_ variables have changed; threads may share it."""
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
    client = session.client("s3", config=config)
    client.meta.events.register("before-send.s3", _count_request)
    client.meta.events.register("response-received.s3", _count_answer)
    return client


_counting = threading.Lock()
_counted: Counter[str] = Counter()


def add_traffic(more: Mapping[str, float]) -> None:
    """Counts amounts by a name of `cluster.costs.STORAGE`; also what `take_traffic` has returned in another process."""
    with _counting:
        _counted.update({name: int(value) for name, value in more.items()})


def take_traffic() -> dict[str, float]:
    """Returns the traffic since the last call, each request once."""
    with _counting:
        taken: dict[str, float] = {name: value for name, value in _counted.items() if value}
        _counted.clear()
    return taken


def _count_request(request: Any, event_name: str, **_: Any) -> None:
    kind = _KINDS.get(event_name.rpartition(".")[2], "get")
    add_traffic({kind: 1, "sent_bytes": int(request.headers.get("Content-Length") or 0)})


def _count_answer(parsed_response: Any, event_name: str, **_: Any) -> None:
    if event_name.endswith(".GetObject") and parsed_response and "Error" not in parsed_response:
        add_traffic({"received_bytes": int(parsed_response.get("ContentLength") or 0)})


def call(url: str, operation: Callable[[Any], Value]) -> Value:
    """Returns `operation(client)`, one request to `url`, retried while it fails with a transient error.

    Raises:
        ClusterError: A permanent error.
        FileNotFoundError: There is no such object.
        PreconditionFailed: The request was conditional.
        UnavailableError: Still a transient error after `RETRY_SECONDS`. No error is chained to botocore's: a worker's error is
            logged with its causes, and a server's text may hold secrets.
    """
    try:
        return retried(partial(_attempt, url, operation), _patience)
    except _Away as away:
        failure = away
    if _misconfigured(failure):
        raise ClusterError("storage-refused", f"{url}: {failure}; {failure.remedy}")
    _unavailable.add(failure.endpoint)
    raise UnavailableError(f"{url}: {failure} for {failure.lasted:.0f} s")


class _Away(Transient):
    """An error that a retry may mend, or else this remedy, where no request to the endpoint ever succeeded."""

    def __init__(self, message: str, endpoint: str, remedy: str | None = None) -> None:
        super().__init__(message, f"S3 at {_host(endpoint)}" if endpoint else "S3")
        self.endpoint, self.remedy = endpoint, remedy


def _attempt(url: str, operation: Callable[[Any], Value]) -> Value:
    """Returns `operation(client)`, with botocore's errors translated."""
    where = None
    try:
        where = client()
        value = operation(where)
    except Exception as error:
        failure = _translated(error, url, where)
        if failure is None:
            raise
    else:
        endpoint = where.meta.endpoint_url
        _answered.add(endpoint)
        _unavailable.discard(endpoint)
        answered(f"S3 at {_host(endpoint)}")
        return value
    if where and not isinstance(failure, _Away):
        _answered.add(where.meta.endpoint_url)
    if isinstance(failure, _Away) and failure.remedy == _NO_CREDENTIALS:
        _client.cache_clear()  # a client never looks for credentials again
    raise failure


def _misconfigured(failure: _Away) -> bool:
    return failure.remedy is not None and failure.endpoint not in _answered


def _patience(failure: Transient) -> float:
    assert isinstance(failure, _Away)
    short = _misconfigured(failure) or failure.endpoint in _unavailable
    return SHORT_RETRY_SECONDS if short else RETRY_SECONDS


def _translated(error: Exception, url: str, where: Any) -> Exception | None:
    """Returns our exception for one of botocore's; None for any other.

    Of a server's answer only the code is passed on: some servers answer a wrong signature with the text that was signed.
    """
    from botocore import exceptions as s3
    from urllib3 import exceptions as body  # botocore passes those of a body on as they are

    endpoint = where.meta.endpoint_url if where else ""
    host, region = (_host(endpoint), where.meta.region_name) if where else ("S3", None)
    if isinstance(error, s3.ClientError):
        return _refused(error, url, endpoint, region)
    known: list[tuple[Any, Exception]] = [
        (s3.SSLError | body.SSLError, _insecure(error, url, endpoint)),
        (s3.ParamValidationError | s3.UnsupportedS3ArnError, ClusterError(
            "storage-refused", f"{url}: is not an S3 address; write s3://BUCKET/FOLDER"
        )),
        (
            s3.NoCredentialsError | s3.CredentialRetrievalError | s3.TokenRetrievalError | s3.MetadataRetrievalError,
            _Away("no credentials for S3", endpoint, _NO_CREDENTIALS),
        ),
        (
            s3.EndpointConnectionError | s3.ConnectTimeoutError | s3.ProxyConnectionError,
            _Away(f"no answer from {host}", endpoint, _ADDRESS),
        ),
        # a login page has no ETag, and a redirect to one goes in circles
        (KeyError | RecursionError if where else (), _Away(f"the server at {host} is not S3", endpoint, _ADDRESS)),
        (
            s3.HTTPClientError | body.HTTPError | s3.IncompleteReadError | s3.FlexibleChecksumError | s3.ChecksumError,
            _Away(f"{host} broke off ({type(error).__name__})", endpoint),
        ),
        (s3.BotoCoreError, ClusterError("storage-refused", f"{url}: {_short(error)}; {_SETTINGS}")),
    ]  # fmt: skip
    if where is None and isinstance(error, ValueError):  # an invalid address or config file
        return ClusterError("storage-refused", f"{url}: {_short(error)}; {_SETTINGS}")
    return next((failure for kinds, failure in known if isinstance(error, kinds)), None)


def _insecure(error: Exception, url: str, endpoint: str) -> Exception:
    """Returns our exception for an error of TLS: only a certificate stays wrong; a handshake also breaks off in a restart."""
    problem = f"no secure connection to {_host(endpoint)} ({_short(error)})"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return ClusterError("storage-refused", f"{url}: {problem}; set AWS_CA_BUNDLE, or correct the address")
    return _Away(problem, endpoint, "correct AWS_ENDPOINT_URL_S3 (https or http), or repair the network")


def _refused(error: Any, url: str, endpoint: str, region: str | None) -> Exception:
    host, answer = _host(endpoint), error.response.get("ResponseMetadata", {})
    code, status = str(error.response.get("Error", {}).get("Code", "")), int(answer.get("HTTPStatusCode", 0))
    if code in _BUSY or (status >= 500 and status != 501) or status in (408, 429):
        return _Away(f"{host} answers {status} {code}", endpoint)
    if status == 412:
        return PreconditionFailed(url)
    problem = _REFUSED.get(code) or _REFUSED.get(str(status))
    if problem is not None:
        right = error.response.get("Error", {}).get("Region") or answer.get("HTTPHeaders", {}).get("x-amz-bucket-region")
        named = {"bucket": "/".join(url.split("/", 3)[:3]), "host": host, "code": code, "operation": error.operation_name}
        return ClusterError(
            "storage-refused", f"{url}: " + problem.format(**named, region=region, right=repr(right) if right else "its own")
        )
    if code in _NOT_FOUND or status == 404:
        return FileNotFoundError(errno.ENOENT, "no such object", url)
    return OSError(errno.EIO, f"{host} answers {status} {code} to {error.operation_name}", url)


def _host(endpoint: str) -> str:
    parts = urlsplit(endpoint)  # without user and password
    return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)


def _short(error: Exception) -> str:
    """Returns the error as one line, without user and password of an address."""
    return re.sub(r"//[^/\s]*@", "//", " ".join(str(error).split()))[:200].rstrip(".")
