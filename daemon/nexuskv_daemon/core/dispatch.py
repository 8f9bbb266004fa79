"""From a request to what performs it.

Owns the one table of all requests. Knows nothing of what any of them does.
"""

from nexuskv_daemon.core import branch_requests, requests

TABLE = {**requests.TABLE, **branch_requests.TABLE}
"""By class. An entry answers None when its request must wait for a segment, and raises NexusError to refuse it."""
