"""The language of the Unix socket: message structs and their msgpack form, without any I/O."""
