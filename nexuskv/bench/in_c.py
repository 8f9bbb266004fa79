"""How long a hit takes in C: the program `hit.c`, compiled here with the library, against a private daemon.

Owns the compiling and the conversation with the program.
"""

import contextlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, cast

import nexuskv
from nexuskv import native
from nexuskv.bench.figures import Readings
from nexuskv.bench.measure import interleaved, placed
from nexuskv.bench.resident import PAGE_BYTES, PAGES
from nexuskv.bench.setting import MODEL, daemon_for, descriptor, random_keys
from nexuskv.bench.suite import Effort, Tell
from nexuskv.errors import StartupError

NANOSECONDS = 1e9
NO_COMPILER = "hit_1_c was not measured: there is no C compiler here (cc or gcc)"


class Program:
    """The running program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._input, self._output = cast("IO[str]", process.stdin), cast("IO[str]", process.stdout)

    @property
    def pid(self) -> int:
        return self._process.pid

    def hits(self) -> list[float]:
        """Seconds of one hit, of many in a row. Raises StartupError with what the program says."""
        self._input.write("\n")
        self._input.flush()
        said = self._output.readline()
        if not said:
            _, complaint = self._process.communicate()
            raise StartupError(f"the C program failed: {complaint.strip()}")
        return [float(said)]


def measure(effort: Effort, readings: Readings, tell: Tell) -> None:
    """Adds hit_1_c, or a note that says why not."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        readings.notes.append(NO_COMPILER)
        return
    tell("hits from C: compiling")
    keys = random_keys(PAGES)
    with (
        daemon_for(PAGES, PAGE_BYTES) as daemon,
        nexuskv.connect(daemon.socket) as client,
        tempfile.TemporaryDirectory(prefix="nexuskv-bench-") as folder,
    ):
        with client.open(descriptor(PAGE_BYTES), model=MODEL).reserve(keys):
            pass
        program = _compiled(compiler, Path(folder))
        with _running([str(program), daemon.socket, "1024", *(key.hex() for key in keys)]) as running:
            for words, placement in effort.turns():
                tell(f"hits from C, {words}")
                with placed(placement, (daemon.pid, running.pid)):
                    found = interleaved(effort.pick(200, 5), {"hit_1_c": running.hits})
                readings.add("hit_1_c", placement, found["hit_1_c"] * NANOSECONDS)


def _compiled(compiler: str, folder: Path) -> Path:
    program = folder / "hit"
    sources = [str(Path(__file__).with_name("hit.c")), native.get_source()]
    command = [
        compiler,
        "-std=gnu11",
        "-O2",
        "-pthread",
        f"-I{native.get_include()}",
        *sources,
        "-o",
        str(program),
    ]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    if built.returncode:
        raise StartupError(f"{' '.join(command)} failed: {built.stderr.strip()}")
    return program


@contextlib.contextmanager
def _running(command: list[str]) -> Iterator[Program]:
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            yield Program(process)
        finally:
            process.kill()
