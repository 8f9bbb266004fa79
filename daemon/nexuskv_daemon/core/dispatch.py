"""From a request to what performs it.

Owns the one table of all requests. Knows nothing of what any of them does.
"""

from nexuskv.protocol.language import Request
from nexuskv_daemon.core import branch_requests, requests
from nexuskv_daemon.core.requests import Answer, Host
from nexuskv_daemon.core.session import Session

_TABLE = {**requests.TABLE, **branch_requests.TABLE}


def perform(host: Host, session: Session, request: Request, now: float) -> Answer | None:
    """Performs a request; None when it must wait for a segment. Raises NexusError for a refusal."""
    return _TABLE[type(request)](host, session, request, now)
