"""A private certificate authority and certificates of hosts, for mutual TLS between daemons.

Owns what stands in them: which host a certificate is for, and which tenants' pages its holder may read, as URIs
"nexuskv:tenant/NAME" among the alternative names. Needs the package cryptography. Knows nothing of who will show them
to whom.
"""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from nexuskv.contract.tenants import TENANT_URI


class Validity(NamedTuple):
    """From when to when a certificate is good, in UTC."""

    start: dt.datetime
    end: dt.datetime

    @classmethod
    def days(cls, count: int) -> "Validity":
        """From an hour ago, as clocks differ, for so many days."""
        start = dt.datetime.now(dt.UTC) - dt.timedelta(hours=1)
        return cls(start, start + dt.timedelta(days=count, hours=1))


class Issued(NamedTuple):
    """A certificate and its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def pem(self) -> tuple[bytes, bytes]:
        """As files hold them; the key is not encrypted."""
        return self.certificate.public_bytes(serialization.Encoding.PEM), self.key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )


def load(certificate: bytes, key: bytes) -> Issued:
    """The reverse of `Issued.pem`. Raises ValueError, or TypeError for an encrypted key."""
    found = serialization.load_pem_private_key(key, None)
    if not isinstance(found, ec.EllipticCurvePrivateKey):
        raise TypeError("the key is not one of an elliptic curve")
    return Issued(x509.load_pem_x509_certificate(certificate), found)


def authority(valid: Validity) -> Issued:
    """An authority that nobody else knows: what it signs is worth what its key file is kept like."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _named("nexuskv test authority")
    builder = (
        _builder(name, name, key.public_key(), valid)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
    )
    return Issued(builder.sign(key, hashes.SHA256()), key)


def host(issuer: Issued, hosts: Sequence[str], tenants: Sequence[str], valid: Validity) -> Issued:
    """For a host with these names and IP addresses, at least one; it serves and connects."""
    key = ec.generate_private_key(ec.SECP256R1())
    names = [
        *map(_alternative, hosts),
        *(x509.UniformResourceIdentifier(TENANT_URI + each) for each in tenants),
    ]
    both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    builder = (
        _builder(_named(hosts[0]), issuer.certificate.subject, key.public_key(), valid)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both), critical=False)
        .add_extension(signer, critical=False)
    )
    return Issued(builder.sign(issuer.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, valid: Validity
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(valid.start)
        .not_valid_after(valid.end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text[:64])])


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
