"""Pages over TCP: for hosts without RDMA, and to test everything else without any.

Bytes go straight from the arena into the socket and out of it into the arena. A connection has several streams, each
with a thread at both ends: the kernel copies while no Python runs. `wire` says what travels.
"""
