"""The other end of the ping-pong: answers each message it receives, until the other side hangs up.

Run as a process of its own with the socket as its standard input. Imports nothing that the floor would not need.
"""

import socket
import sys


def main() -> None:
    """Answers messages of up to 64 bytes with as many as its argument says."""
    answer = bytes(int(sys.argv[1]))
    with socket.socket(fileno=0) as sock:
        while sock.recv(64):
            sock.sendall(answer)


if __name__ == "__main__":
    main()
