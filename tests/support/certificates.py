"""A private authority for tests, and certificates of hosts, made with openssl."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


class Authority:
    """Signs certificates; everything lies in `folder`."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self.certificate = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            "req", "-x509", *_NEW_KEY, "-keyout", str(self._key), "-out", str(self.certificate), "-days", "2",
            "-subj", f"/CN={name}",
        )  # fmt: skip

    def options(self, host: str, tenants: Sequence[str], *, expired: bool = False) -> list[str]:
        """Options of a daemon with a certificate of its own, for 127.0.0.1 and these tenants."""
        key, request = self._folder / f"{host}.key", self._folder / f"{host}.csr"
        certificate, extensions = self._folder / f"{host}.pem", self._folder / f"{host}.ext"
        names = ["IP:127.0.0.1", *(f"URI:nexuskv:tenant/{tenant}" for tenant in tenants)]
        extensions.write_text(f"subjectAltName={','.join(names)}\n")
        _openssl("req", *_NEW_KEY, "-keyout", str(key), "-out", str(request), "-subj", f"/CN={host}")
        _openssl(
            "x509", "-req", "-in", str(request), "-CA", str(self.certificate), "-CAkey", str(self._key),
            "-CAcreateserial", "-extfile", str(extensions), "-out", str(certificate), "-days", "0" if expired else "2",
        )  # fmt: skip
        authority = ["--tls-authority", str(self.certificate)]
        return ["--tls-certificate", str(certificate), "--tls-key", str(key), *authority]


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


def _openssl(*words: str) -> None:
    subprocess.run(["openssl", *words], check=True, capture_output=True)
