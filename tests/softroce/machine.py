"""What boots: a Debian kernel with soft-RoCE and a ramdisk of its modules, made once and kept in `.cache/softroce`.

Owns the packages it takes (apt alone), the unpacked kernel and the ramdisk. Installs no kernel: it takes the package
apart. Refuses to know what is run in a guest.
"""

import fcntl
import gzip
import lzma
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path

HERE = Path(__file__).parent
CACHE = HERE.parents[1] / ".cache" / "softroce"
VMLINUX = CACHE / "vmlinux"
RAMDISK = CACHE / "ramdisk.gz"
PYVERBS = CACHE / "pyverbs" / "usr" / "lib" / "python3" / "dist-packages"
KERNEL = "linux-image-amd64"  # the cloud kernel has neither rxe nor 9p

PACKAGES = {  # what it takes -> a command or file by which one sees that it is here
    "qemu-system-x86": "qemu-system-x86_64",
    "busybox-static": "busybox",
    "kmod": "modprobe",
    "iproute2": "rdma",
    "ibverbs-providers": "/etc/libibverbs.d/rxe.driver",
    "perftest": "ib_read_bw",
}
WANTED = (  # of the kernel's package
    "./boot/vmlinuz*",
    "./lib/modules/*/modules.*",
    "*/kernel/crypto/crc32*",
    "*/kernel/drivers/infiniband/core/*",
    "*/kernel/drivers/infiniband/sw/*",
    "*/kernel/drivers/net/*.ko",
    "*/kernel/drivers/virtio/*",
    "*/kernel/fs/9p/*",
    "*/kernel/fs/configfs/*",
    "*/kernel/fs/fscache/*",
    "*/kernel/fs/netfs/*",
    "*/kernel/fs/overlayfs/*",
    "*/kernel/net/9p/*",
    "*/kernel/net/core/*",
    "*/kernel/net/ipv[46]/*udp_tunnel.ko",
)
MODULES = (
    "virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net", "dummy", "ib_uverbs", "crc32_generic", "rdma_rxe"
)  # fmt: skip
XZ = b"\xfd7zXZ\0"


def obstacle() -> str | None:
    """Why no guest can be run here, in a sentence; None when one can."""
    if platform.machine() != "x86_64":
        return f"soft-RoCE guests are x86-64, this machine is {platform.machine()}"
    if os.geteuid() != 0:
        return "soft-RoCE guests need root: they read the whole file system, and apt installs what they take"
    if sys.version_info[:2] != (3, 11):
        version = ".".join(map(str, sys.version_info[:2]))
        return f"Debian's pyverbs in the guest is for CPython 3.11, this is {version}"
    if shutil.which("apt-get") is None and not _ready():
        return "soft-RoCE guests are set up with apt-get, which is not here"
    return None


def prepare() -> None:
    """Makes what is missing: about 15 s and 90 MB of downloads on a bare machine. Raises CalledProcessError."""
    with _locked():
        if _ready():
            return
        _install(
            [package for package, sign in PACKAGES.items() if shutil.which(sign) is None and not _is(sign)]
        )
        with tempfile.TemporaryDirectory(dir=CACHE) as folder:
            work = Path(folder)
            _unpack_pyverbs(work)
            release = _unpack_kernel(work)
            _make_ramdisk(work, release)


def _ready() -> bool:
    here = all(shutil.which(sign) or _is(sign) for sign in PACKAGES.values())
    return here and VMLINUX.exists() and PYVERBS.exists() and _is_new(RAMDISK)


def _is(sign: str) -> bool:
    return sign.startswith("/") and Path(sign).exists()


def _is_new(ramdisk: Path) -> bool:
    made_of = (HERE / "guest" / "init", Path(__file__))
    return ramdisk.exists() and all(ramdisk.stat().st_mtime > source.stat().st_mtime for source in made_of)


@contextmanager
def _locked() -> Iterator[None]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _install(packages: list[str]) -> None:
    _apt("update")
    if packages:
        _apt("install", "--yes", "--no-install-recommends", *packages)


def _unpack_pyverbs(work: Path) -> None:
    # Unpacked beside the virtual environment: as an installed package it would serve the system's Python alone.
    _run("dpkg", "--extract", str(_download("python3-pyverbs", work)), str(CACHE / "pyverbs"))


def _unpack_kernel(work: Path) -> str:
    depends = _run("apt-cache", "depends", KERNEL).split()
    deb = _download(next(word for word in reversed(depends) if word.startswith("linux-image-")), work)
    with (
        subprocess.Popen(["dpkg", "--fsys-tarfile", deb], stdout=subprocess.PIPE) as process,
        tarfile.open(fileobj=process.stdout, mode="r|") as package,
    ):
        for member in package:
            if any(fnmatch(member.name, wanted) for wanted in WANTED):
                package.extract(member, work, filter="tar")
    image = next((work / "boot").glob("vmlinuz*")).read_bytes()
    # Uncompressed, the kernel boots 2 to 3 s sooner under emulation.
    unpacked = lzma.LZMADecompressor().decompress(image[image.index(XZ) :])
    _place(VMLINUX, unpacked)
    return next((work / "lib" / "modules").iterdir()).name


def _make_ramdisk(work: Path, release: str) -> None:
    root = work / "ramdisk"
    for folder in ("bin", "dev", "proc", "sys", "host", "rw", "newroot", "modules"):
        (root / folder).mkdir(parents=True)
    shutil.copy(shutil.which("busybox") or "busybox", root / "bin")
    shutil.copy(HERE / "guest" / "init", root)
    (root / "init").chmod(0o755)
    _run("depmod", "-b", str(work), release)
    order = [Path(shutil.copy(module, root / "modules")).name for module in _with_dependencies(work, release)]
    (root / "modules" / "order").write_text("".join(f"{name}\n" for name in order))
    names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
    archive = subprocess.run(
        ["busybox", "cpio", "-o", "-H", "newc"],
        input=names.encode(),
        cwd=root,
        check=True,
        capture_output=True,
    )
    _place(RAMDISK, gzip.compress(archive.stdout, 1))


def _with_dependencies(work: Path, release: str) -> list[str]:
    """Paths of all modules, each after those that it needs."""
    paths: dict[str, None] = {}
    for module in MODULES:
        for line in _run("modprobe", "-d", str(work), "-S", release, "--show-depends", module).splitlines():
            verb, path, *_ = line.split()  # options may follow
            if verb == "insmod":
                paths[path] = None
    return list(paths)


def _download(package: str, work: Path) -> Path:
    _apt("download", package, cwd=work)
    return next(work.glob(f"{package}_*.deb"))


def _place(path: Path, content: bytes) -> None:
    unfinished = path.with_suffix(".new")
    unfinished.write_bytes(content)
    unfinished.replace(path)


def _apt(*words: str, cwd: Path = CACHE) -> None:
    _run("apt-get", "-qq", "-o", "APT::Sandbox::User=root", *words, cwd=cwd)


def _run(*command: str, cwd: Path = CACHE) -> str:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=cwd, env=quiet, check=True, capture_output=True, text=True)
    return done.stdout
