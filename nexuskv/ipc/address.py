"""Where a daemon's socket is.

Owns the spelling of addresses (`unix:/path`) and the default places, tried in one order by daemon and client alike:
NEXUSKV_SOCKET, the system service's socket, the user's own. Opens nothing.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from nexuskv.errors import BadRequest

SYSTEM_SOCKET = Path("/run/nexuskv/nexuskvd.sock")
DEFAULT_INSTANCE = "default"
MAX_PATH_BYTES = 107
"""The kernel's sun_path holds 108 bytes with the closing zero."""


def parse(address: str) -> Path:
    """The path of a `unix:/path` address. Raises BadRequest."""
    scheme, colon, path = address.partition(":")
    if not colon or scheme != "unix" or not path:
        raise BadRequest(f"socket address {address!r}: write unix:/path/to/socket")
    if len(os.fsencode(path)) > MAX_PATH_BYTES:
        raise BadRequest(
            f"socket path {path!r} is longer than the kernel's {MAX_PATH_BYTES} bytes: choose a shorter one"
        )
    return Path(path)


def user_socket(instance: str = DEFAULT_INSTANCE, environ: Mapping[str, str] = os.environ) -> Path:
    """The socket of a daemon that an ordinary user starts by hand."""
    runtime = environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / "nexuskv" if runtime else Path(f"/tmp/nexuskv-{os.getuid()}")
    return base / f"{instance}.sock"


def find(environ: Mapping[str, str] = os.environ) -> Path:
    """Where a client looks when it is told nothing."""
    if chosen := environ.get("NEXUSKV_SOCKET"):
        return parse(chosen)
    own = user_socket(environ=environ)
    return SYSTEM_SOCKET if SYSTEM_SOCKET.exists() and not own.exists() else own
