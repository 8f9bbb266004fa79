"""The peer half of the daemon: other hosts look up, pin and pull pages here, and this host pulls theirs.

Owns the thread that all of this happens in, the control protocol, the directory, and what is known of each peer.
Reaches the core through sessions alone, as clients do: nothing here touches the store, and the event loop never waits
for a peer.
"""
