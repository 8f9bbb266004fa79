"""`nexuskv certs`: makes a private authority and certificates of hosts, to try mutual TLS between daemons.

Owns the files: `ca.pem` and `ca.key` in a directory, made once, and a pair for each host. Knows nothing of what stands
in them.
"""

import argparse
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from nexuskv.cli.options import Subparsers, print_json
from nexuskv.errors import LocalError

if TYPE_CHECKING:  # at run time it is imported when it is needed, as its package is an extra
    from nexuskv.cli.certificates import Issued

DAYS = 30
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,159}", re.ASCII)


def add_parser(subparsers: Subparsers) -> None:
    """Registers `certs`."""
    parser = subparsers.add_parser(
        "certs",
        help="make certificates for TLS between daemons",
        description="Makes a private authority in DIRECTORY, if there is none yet, and a certificate and key for one"
        " host. For tests and small sites: whoever reads ca.key can be any host.",
    )
    parser.add_argument("directory", type=Path, metavar="DIRECTORY")
    parser.add_argument(
        "--host", type=_name, action="append", required=True, metavar="NAME",
        help="a name or IP address by which others connect to it; may be repeated, the first names the files",
    )  # fmt: skip
    parser.add_argument(
        "--tenant", type=_name, action="append", default=[], metavar="NAME",
        help="a tenant whose pages this host may read at others; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--days", type=_days, default=DAYS, metavar="N", help="how long they are good (%(default)s)"
    )
    parser.set_defaults(func=run)


def run(args: argparse.Namespace) -> int:
    """Makes them, and says where they are."""
    try:
        from nexuskv.cli import certificates  # noqa: PLC0415  # an extra, needed by this command alone
    except ImportError as error:
        raise LocalError(
            f"certificates are made by the package cryptography ({error}): pip install 'nexuskv[certs]'"
        ) from error
    try:
        directory: Path = args.directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        valid = certificates.Validity.days(args.days)
        authority = _authority(directory) or _written(directory, "ca", certificates.authority(valid))
        _written(directory, args.host[0], certificates.host(authority, args.host, args.tenant, valid))
    except OSError as error:
        raise LocalError(f"cannot write {error.filename}: {error.strerror}") from error
    _say(directory, args)
    return 0


def _authority(directory: Path) -> "Issued | None":
    from nexuskv.cli import certificates  # noqa: PLC0415  # see above

    certificate, key = directory / "ca.pem", directory / "ca.key"
    if not certificate.exists() and not key.exists():
        return None
    try:
        return certificates.load(certificate.read_bytes(), key.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise LocalError(f"{certificate} and {key} are no authority made by this command: {error}") from error


def _written(directory: Path, stem: str, issued: "Issued") -> "Issued":
    certificate, key = issued.pem()
    _write(directory / f"{stem}.key", key, 0o600)
    _write(directory / f"{stem}.pem", certificate, 0o644)
    return issued


def _write(path: Path, data: bytes, mode: int) -> None:
    """Raises LocalError if it is there: a daemon may be using it."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    except FileExistsError as error:
        raise LocalError(f"{path} is there already: remove it first, or choose another directory") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)


def _say(directory: Path, args: argparse.Namespace) -> None:
    stem = directory / args.host[0]
    made = {"certificate": f"{stem}.pem", "key": f"{stem}.key", "authority": f"{directory / 'ca.pem'}"}
    if args.json:
        print_json(made | {"tenants": args.tenant, "days": args.days})
        return
    for what, path in made.items():
        print(f"{what:12} {path}")


def _name(text: str) -> str:
    if not _NAME.fullmatch(text) or text == "ca":
        raise argparse.ArgumentTypeError(
            "must be letters, digits, '.', '_', ':' or '-', at most 160, and not 'ca'"
        )
    return text


def _days(text: str) -> int:
    days = int(text)
    if not 1 <= days <= 3650:
        raise argparse.ArgumentTypeError("must be between 1 and 3650")
    return days
