"""The C core by itself: warnings, sanitizers, random bytes, and processes that read while another evicts.

NEXUSKV_STRESS_SECONDS makes the stress tests longer (the short form is for every run), NEXUSKV_SEED repeats one.
"""

import os
import shutil
import subprocess
import time
from importlib.metadata import version
from pathlib import Path

import pytest

from nexuskv import native
from tests.native.building import COMPILERS, WARNINGS, build, run, sanitizer_works
from tests.native.objects import Objects

SECONDS = float(os.environ.get("NEXUSKV_STRESS_SECONDS", "3"))
SEED = int(os.environ.get("NEXUSKV_SEED", str(time.time_ns() % 2**32)))
BREAK_SECONDS = 20.0


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("optimisation", ["-O0", "-O2", "-O3"])
def test_the_library_compiles_without_a_warning(tmp_path: Path, compiler: str, optimisation: str) -> None:
    source, output = native.get_source(), str(tmp_path / "nexuskv.o")
    subprocess.run(
        [compiler, "-std=c11", optimisation, *WARNINGS, "-c", source, "-o", output], check=True, timeout=60
    )


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize(("language", "standard"), [("c", "c11"), ("c++", "c++17")])
def test_the_header_alone_is_c11_and_cpp17(
    tmp_path: Path, compiler: str, language: str, standard: str
) -> None:
    user = tmp_path / "user.inc"
    user.write_text("#include <nexuskv.h>\nint main() { return (int)sizeof(nx_handle) - 40; }\n")
    include = f"-I{native.get_include()}"
    subprocess.run(
        [compiler, f"-std={standard}", *WARNINGS, include, "-x", language, "-fsyntax-only", str(user)],
        check=True,
        timeout=60,
    )


@pytest.mark.parametrize("compiler", COMPILERS)
def test_random_bytes_in_any_field_hurt_nobody(tmp_path: Path, compiler: str) -> None:
    if not sanitizer_works(compiler, "address,undefined", tmp_path):
        pytest.skip(f"{compiler} has no address sanitizer here")
    sanitizers = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-O1")
    program = build(tmp_path, compiler, "fuzz", *sanitizers, library=False)

    assert run(program, 20_000, SEED).returncode == 0


@pytest.mark.parametrize("compiler", COMPILERS)
def test_threads_race_nowhere(tmp_path: Path, compiler: str) -> None:
    if not sanitizer_works(compiler, "thread", tmp_path):
        pytest.skip(f"{compiler} has no thread sanitizer here")
    # gcc warns that its sanitizer does not follow fences; the protocol's happens-before edges are all accesses.
    quiet = ("-Wno-tsan",) if compiler == "gcc" else ()
    sanitizer = ("-fsanitize=thread", "-O1", *quiet)
    assert run(build(tmp_path, compiler, "threads", *sanitizer), 30_000, SEED).returncode == 0

    broken = build(tmp_path, compiler, "threads", *sanitizer, "-DNX_WITHOUT_RELEASE")
    assert "data race" in run(broken, 30_000, SEED).stderr


@pytest.mark.parametrize(
    ("slots", "page_bytes", "kills"), [(512, 512, 0), (64, 4096, 0), (4, 64, 0), (512, 256, 20)]
)
def test_readers_verify_every_byte_while_a_writer_evicts(
    tmp_path: Path, slots: int, page_bytes: int, kills: int
) -> None:
    program = build(tmp_path, COMPILERS[0], "stress", "-O2")

    done = run(program, SECONDS, 3, SEED, slots, page_bytes, kills, seconds=SECONDS + 60)

    assert done.returncode == 0
    assert done.stdout.endswith("ok\n")


@pytest.mark.parametrize("fence", ["NX_WITHOUT_READER_FENCE", "NX_WITHOUT_WRITER_FENCE"])
def test_the_stress_test_notices_a_missing_fence(tmp_path: Path, fence: str) -> None:
    program = build(tmp_path, COMPILERS[0], "stress", "-O2", f"-D{fence}")

    assert run(program, BREAK_SECONDS, 2, SEED, 4, 64, 0).returncode == 1


def test_a_hit_makes_no_system_call(tmp_path: Path) -> None:
    done = run(build(tmp_path, COMPILERS[0], "silent", "-O2"), 100_000)

    if done.returncode == 77:
        pytest.skip("no seccomp here")
    assert done.returncode == 0
    assert int(done.stdout.split()[0]) >= 100_000


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config here")
def test_pkg_config_finds_header_and_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKG_CONFIG_PATH", native.get_include())

    def ask(*arguments: str) -> str:
        return subprocess.check_output(["pkg-config", *arguments, "nexuskv"], text=True).strip()

    assert ask("--cflags") == f"-I{native.get_include()}"
    assert ask("--variable=source") == native.get_source()
    assert ask("--modversion") == version("nexuskv")


def test_the_index_names_the_release_that_made_it(objects: Objects) -> None:
    assert objects.writer.release == version("nexuskv")
