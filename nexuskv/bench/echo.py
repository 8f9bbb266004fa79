"""The other end of the ping-pong: sends back what it receives, until the other side hangs up.

Run as a process of its own with the socket as its standard input. Imports nothing that the floor would not need.
"""

import socket


def main() -> None:
    """Echoes messages of up to 64 bytes."""
    with socket.socket(fileno=0) as sock:
        while message := sock.recv(64):
            sock.send(message)


if __name__ == "__main__":
    main()
