"""A server's certificate that only its own file vouches for."""

import ssl
import subprocess
from pathlib import Path

import pytest


def own_certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """The certificate's file, and the context of a server at localhost that has it; skips where there is no openssl."""
    certificate, key = folder / "ca.crt", folder / "key.pem"
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    more = ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    try:
        subprocess.run([*made, *more], check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("there is no openssl to make a certificate with")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    return certificate, context
