"""Certificates for tests: good ones, and each kind of bad one.

Owns the files in a directory of the test.
"""

import datetime as dt
from pathlib import Path

from nexuskv.cli import certificates
from nexuskv_transport import Tls
from tests.transport.serving import TENANT

GOOD = certificates.Validity.days(1)
PAST = certificates.Validity(GOOD.start - dt.timedelta(days=2), GOOD.start - dt.timedelta(days=1))


class Site:
    """An authority, and hosts that it signs."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._authority = certificates.authority(GOOD)
        directory.mkdir()
        self._ca = self._file("ca.pem", self._authority.pem()[0])

    def host(
        self,
        name: str,
        *,
        tenants: tuple[str, ...] = (TENANT,),
        addresses: tuple[str, ...] = ("127.0.0.1",),
        valid: certificates.Validity = GOOD,
        authority: str = "",
    ) -> Tls:
        """Paths of a host's; it trusts this site's authority, or the one in the file `authority`."""
        certificate, key = certificates.host(self._authority, addresses, tenants, valid).pem()
        return Tls(
            self._file(f"{name}.pem", certificate), self._file(f"{name}.key", key), authority or self._ca
        )

    def _file(self, name: str, data: bytes) -> str:
        path = self._directory / name
        path.write_bytes(data)
        return str(path)
