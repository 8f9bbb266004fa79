"""Compiles the C harnesses with the compilers that are there.

Owns the flags; knows nothing of what a harness checks.
"""

import shutil
import subprocess
from pathlib import Path

import pytest

from nexuskv import native

HARNESSES = Path(__file__).parent / "c"
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror")
COMPILERS = [name for name in ("gcc", "clang") if shutil.which(name)]


def sanitizer_works(compiler: str, sanitizer: str, folder: Path) -> bool:
    """Some machines have the compiler without its run-time libraries."""
    source = folder / "empty.c"
    source.write_text("int main(void) { return 0; }\n")
    command = [compiler, f"-fsanitize={sanitizer}", str(source), "-o", str(folder / "empty")]
    built = subprocess.run(command, capture_output=True, check=False)
    return built.returncode == 0 and subprocess.run([folder / "empty"], check=False).returncode == 0


def build(folder: Path, compiler: str, harness: str, *flags: str, library: bool = True) -> Path:
    """The program of `c/<harness>.c`, with the library compiled into it. Fails the test on any warning."""
    program = folder / harness
    sources = [HARNESSES / f"{harness}.c", *([native.get_source()] if library else [])]
    include = f"-I{native.get_include()}"
    command = [compiler, "-std=c11", "-g", "-Wall", "-Wextra", "-Werror", include, *flags, *map(str, sources)]
    built = subprocess.run(
        [*command, "-pthread", "-o", str(program)], capture_output=True, text=True, check=False
    )
    if built.returncode != 0:
        pytest.fail(f"{' '.join(command)}\n{built.stderr}")
    return program


def build_cpp(folder: Path, compiler: str, program: str, *flags: str) -> Path:
    """The C++17 program of `c/<program>.cpp`, linked with the library compiled as C."""
    library, output = folder / "nexuskv.o", folder / program
    include = f"-I{native.get_include()}"
    cpp = {"gcc": "g++", "clang": "clang++"}[compiler]
    compile_c = [compiler, "-std=c11", "-g", include, *flags, "-c", native.get_source(), "-o", str(library)]
    compile_cpp = [cpp, "-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", include, *flags]
    for command in (
        compile_c,
        [*compile_cpp, str(HARNESSES / f"{program}.cpp"), str(library), "-o", str(output)],
    ):
        subprocess.run(command, check=True, timeout=100)
    return output


def run(program: Path, *arguments: object, seconds: float = 100) -> subprocess.CompletedProcess[str]:
    """Its exit status and output; prints the output, so that a failure shows its seed."""
    command = [str(program), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    print(*command[1:], done.stdout, done.stderr, sep="\n")  # noqa: T201  # pytest shows it with a failure
    return done
