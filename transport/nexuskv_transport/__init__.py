"""Moves pages between hosts: from the arena of one daemon straight into the arena of another.

Owns the small transport interface, the registry that turns a scheme into a class, and one module for each
way to move bytes: loopback, TCP, RDMA. Knows descriptors and extents; refuses to know the daemon, its
sessions and its eviction, and who decided that a page is worth moving. Nothing is implemented here yet.
"""
