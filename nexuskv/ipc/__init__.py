"""Sockets, file descriptors and mapped memory: what the daemon's shell and the client have in common."""
