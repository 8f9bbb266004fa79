"""What is shipped works elsewhere: sdist and wheel build, and the wheel runs from an empty environment."""

import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

REPOSITORY = Path(__file__).parents[2]
# What a checkout holds; the rest of the folder is the tools' and the developer's.
SOURCES = (
    ".ci", ".clang-format", ".editorconfig", "CHANGELOG.md", "LICENSE", "MANIFEST.in", "Makefile", "README.md",
    "daemon", "nexuskv", "pyproject.toml", "systemd", "tests", "transport", "typings",
)  # fmt: skip
IMPORT_ROOTS = {"nexuskv": ".", "nexuskv_daemon": "daemon", "nexuskv_transport": "transport"}

# Two builds and an installation, each of which may download what it needs.
pytestmark = pytest.mark.timeout(600)


class Built(NamedTuple):
    """The two archives, and the sdist unpacked."""

    sdist: Path
    wheel: Path
    unpacked: Path


def run(*command: str | Path, cwd: Path | None = None) -> str:
    """Run to success; returns stdout."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def files_under(folder: Path, names: Iterable[str]) -> set[str]:
    """Relative paths of the files in `names`, which are files or folders of `folder`."""
    paths = [path for name in names for path in (folder / name, *(folder / name).rglob("*"))]
    return {
        str(path.relative_to(folder))
        for path in paths
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so"
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources, so that building leaves nothing in the repository."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in files_under(REPOSITORY, SOURCES):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(REPOSITORY / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def built(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", out, checkout)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    with tarfile.open(sdist) as archive:
        archive.extractall(out, filter="data")
    return Built(sdist, wheel, out / sdist.name.removesuffix(".tar.gz"))


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an empty virtual environment into which the wheel was installed."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    run(folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", built.wheel)
    return folder / "bin"


def test_the_sdist_is_the_whole_checkout(checkout: Path, built: Built) -> None:
    assert files_under(built.unpacked, SOURCES) == files_under(checkout, SOURCES)


def test_the_tests_of_the_sdist_are_found(built: Built) -> None:
    command = ("-m", "pytest", "--collect-only", "--quiet", "-p", "no:cacheprovider")

    run(
        sys.executable,
        "-m",
        "pip",
        "--quiet",
        "install",
        "--no-deps",
        "--target",
        built.unpacked / "built",
        ".",
        cwd=built.unpacked,
    )
    (extension,) = (built.unpacked / "built/nexuskv/native").glob("_core*.so")
    shutil.copy2(extension, built.unpacked / "nexuskv/native")
    assert "tests/packaging/test_distribution.py" in run(sys.executable, *command, cwd=built.unpacked)


def test_the_wheel_holds_every_module_and_data_file_and_nothing_else(checkout: Path, built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
    (extension,) = (name for name in shipped if name.endswith(".so"))
    shipped.remove(extension)

    assert shipped == set().union(
        *(files_under(checkout / root, [name]) for name, root in IMPORT_ROOTS.items())
    )
    assert {f"{name}/py.typed" for name in IMPORT_ROOTS} < shipped


def test_the_licence_travels_with_the_wheel(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/LICENSE"))
        assert archive.read(name) == (REPOSITORY / "LICENSE").read_bytes()


@pytest.mark.parametrize("program", ["nexuskv", "nexuskvd"])
def test_the_programs_run_from_an_empty_environment(installed: Path, program: str) -> None:
    assert run(installed / program, "--help", cwd=installed).startswith(f"usage: {program}")


def test_the_daemon_tells_the_version_of_the_distribution(installed: Path, built: Built) -> None:
    assert (
        run(installed / "nexuskvd", "--version", cwd=installed).split()[-1] == built.wheel.name.split("-")[1]
    )


def test_the_installed_packages_import_without_the_extras(installed: Path) -> None:
    run(installed / "python", "-W", "error", "-c", f"import {', '.join(IMPORT_ROOTS)}", cwd=installed)
