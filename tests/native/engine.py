"""An engine in C that does what it is told, a line at a time: the program c/converse.c."""

import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self


class Engine:
    """Attached to the daemon at `address` once it is made."""

    def __init__(self, program: Path, address: str) -> None:
        self._process = subprocess.Popen(
            [program, address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        assert self.ask("unpin 0") == "stale"  # it has attached

    def ask(self, line: str) -> str:
        """Its answer."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(line + "\n")
        return self._process.stdout.readline().strip()

    def pin(self, key: bytes) -> str:
        """It says `pinned N`, `miss` or `error SENTENCE`."""
        return self.ask(f"pin {key.hex()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=10)
        assert self._process.returncode == 0
