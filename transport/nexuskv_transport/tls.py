"""Mutual TLS: contexts from the paths of certificates, and what a peer's certificate says about it.

Owns which protocol and which checks: TLS 1.3 alone, both sides with a certificate of the one private authority, and the
client checks that the server's names the host it wanted. Tenants are URIs among a certificate's alternative names,
"nexuskv:tenant/NAME". Knows nothing of what travels inside.
"""

import ssl
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nexuskv.contract.tenants import TENANT_URI
from nexuskv.errors import StartupError
from nexuskv_transport.base import Identity, Tls


def server_context(tls: Tls) -> ssl.SSLContext:
    """For those who are connected to. Raises StartupError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    context.num_tickets = (
        0  # nobody resumes a session, and unread tickets would end a short connection in a reset
    )
    return _loaded(context, tls)


def client_context(tls: Tls) -> ssl.SSLContext:
    """For those who connect. Raises StartupError."""
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), tls)


def identity(sock: ssl.SSLSocket, address: str) -> Identity:
    """Who is at the other end, after the handshake: it has proved what its certificate says."""
    certificate: dict[str, Any] = sock.getpeercert() or {}
    names = [value for field in certificate.get("subject", ()) for key, value in field if key == "commonName"]
    uris = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "URI"]
    return Identity(f"{names[0] if names else 'unnamed'} at {address}", _tenants(uris))


def explained(error: ssl.SSLError) -> str:
    """What went wrong, as a sentence's end."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    return (error.reason or str(error)).lower().replace("_", " ")


def _tenants(uris: Iterable[str]) -> frozenset[str]:
    return frozenset(uri.removeprefix(TENANT_URI) for uri in uris if uri.startswith(TENANT_URI))


def _loaded(context: ssl.SSLContext, tls: Tls) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    for path in (tls.certificate, tls.key, tls.authority):
        if not Path(path).is_file():
            raise StartupError(f"TLS: {path} is not there; `nexuskv certs` makes certificates for a test")
    try:
        context.load_verify_locations(tls.authority)
        context.load_cert_chain(tls.certificate, tls.key)
    except (ssl.SSLError, OSError) as error:
        raise StartupError(
            f"TLS: {tls.certificate}, {tls.key} and {tls.authority} are not the PEM files of a certificate, of its key"
            f" and of an authority ({error}); `nexuskv certs` makes some for a test"
        ) from error
    return context
