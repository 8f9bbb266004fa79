"""The daemon of a host: owns the shared memory that holds inference state, and says where in it a page lies.

`core` is the pure state machine; the modules beside it are thin shells around the operating system (sockets,
shared memory, limits, systemd), and `main` alone knows them all. Speaks the contract and the messages of
`nexuskv`; refuses to know its client, and is imported by nobody: engines, the command line and the demo start
it as a process.
"""
