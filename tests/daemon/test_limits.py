"""What the machine allows: real tmpfs mounts where the test may mount, control-group files in a folder."""

import os
import resource
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from nexuskv.errors import StartupError
from nexuskv_daemon import limits
from nexuskv_daemon.limits import Machine

MIB = 1 << 20
GIB = 1 << 30
UNLIMITED_V1 = 0x7FFF_FFFF_FFFF_F000


@pytest.fixture
def small_shm(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 64 MiB, the size that a container gets unless told otherwise."""
    folder = tmp_path / "shm"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64M", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"may not mount a tmpfs here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without control groups and with 8 GiB of memory; its "tmpfs" is the folder's file system."""
    for folder in ("cgroups", "proc/self"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 16777216 kB\nMemAvailable:    8388608 kB\n")
    (tmp_path / "proc/self/cgroup").write_text("")
    return Machine(shm=tmp_path, cgroups=tmp_path / "cgroups", proc=tmp_path / "proc")


def write_group(machine: Machine, group: str, **files: int | str) -> Path:
    """Write the files of one control group; `__` in a name stands for the dot."""
    folder = machine.cgroups / group
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")
    return folder


def enter_group(machine: Machine, *lines: str) -> None:
    (machine.proc / "self/cgroup").write_text("".join(f"{line}\n" for line in lines))


def test_free_space_is_what_the_tmpfs_has_left(small_shm: Path) -> None:
    machine = Machine(shm=small_shm)
    assert limits.shm_free(machine) == 64 * MIB

    (small_shm / "object").write_bytes(bytes(16 * MIB))

    assert limits.shm_free(machine) == 48 * MIB


def test_a_budget_larger_than_the_tmpfs_is_refused_with_the_numbers(small_shm: Path) -> None:
    with pytest.raises(StartupError) as refusal:
        limits.check_budget(4 * GIB, Machine(shm=small_shm))

    assert str(refusal.value) == (
        f"--memory asks for 4 GiB, {small_shm} has 64 MiB free: take --memory 64MiB or less, "
        f"or enlarge it (mount -o remount,size=4096M {small_shm}; for a container --shm-size)"
    )


def test_the_advised_remount_makes_the_budget_fit(small_shm: Path) -> None:
    (small_shm / "object").write_bytes(bytes(16 * MIB))
    machine = Machine(shm=small_shm)
    with pytest.raises(StartupError) as refusal:
        limits.check_budget(100 * MIB, machine)

    advice = str(refusal.value).partition("(")[2].partition(";")[0]
    subprocess.run(advice.split(), check=True)

    limits.check_budget(100 * MIB, machine)


def test_the_default_budget_works_in_a_small_container(small_shm: Path) -> None:
    budget = limits.default_budget(Machine(shm=small_shm))

    assert budget == 32 * MIB
    limits.check_budget(budget, Machine(shm=small_shm))


def test_a_full_tmpfs_leaves_no_default(small_shm: Path) -> None:
    (small_shm / "object").write_bytes(bytes(64 * MIB))

    with pytest.raises(StartupError, match="has 0 B free"):
        limits.default_budget(Machine(shm=small_shm))


def test_a_missing_tmpfs_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="mount a tmpfs there"):
        limits.check_budget(MIB, Machine(shm=tmp_path / "nowhere"))


def test_without_control_groups_there_is_no_such_limit(machine: Machine) -> None:
    assert limits.cgroup_headroom(machine) is None


def test_version_2_the_tightest_group_on_the_way_up_wins(machine: Machine) -> None:
    enter_group(machine, "0::/pods/engine")
    write_group(machine, "", memory__stat="")
    pods = write_group(machine, "pods", memory__max=4 * GIB, memory__high="max", memory__current=3 * GIB)
    write_group(machine, "pods/engine", memory__max=2 * GIB, memory__high="max", memory__current=512 * MIB)

    headroom = limits.cgroup_headroom(machine)

    assert headroom is not None
    assert (headroom.cgroup, headroom.free) == (pods, GIB)


def test_version_2_above_memory_high_is_no_room(machine: Machine) -> None:
    enter_group(machine, "0::/")
    write_group(machine, "", memory__max="max", memory__high=GIB, memory__current=256 * MIB)

    headroom = limits.cgroup_headroom(machine)

    assert headroom is not None
    assert headroom.free == 768 * MIB


def test_reclaimable_file_cache_counts_as_free(machine: Machine) -> None:
    enter_group(machine, "0::/")
    stat = f"anon 4096\ninactive_file {512 * MIB}"
    write_group(machine, "", memory__max=GIB, memory__current=GIB, memory__stat=stat)

    headroom = limits.cgroup_headroom(machine)

    assert headroom is not None
    assert headroom.free == 512 * MIB


def test_version_1_no_limit_is_no_limit(machine: Machine) -> None:
    enter_group(machine, "4:memory:/", "0::/")
    write_group(machine, "memory", memory__limit_in_bytes=UNLIMITED_V1, memory__usage_in_bytes=GIB)
    write_group(machine, "unified")

    assert limits.cgroup_headroom(machine) is None


def test_version_1_in_a_container_that_sees_only_its_own_group(machine: Machine) -> None:
    enter_group(machine, "7:cpu,cpuacct:/docker/4f1c", "4:hugetlb,memory:/docker/4f1c", "1:name=systemd:/")
    own = write_group(machine, "memory", memory__limit_in_bytes=GIB, memory__usage_in_bytes=256 * MIB)

    headroom = limits.cgroup_headroom(machine)

    assert headroom is not None
    assert (headroom.cgroup, headroom.limit, headroom.used) == (own, GIB, 256 * MIB)


def test_a_budget_above_the_control_group_is_refused_with_the_numbers(machine: Machine) -> None:
    enter_group(machine, "0::/")
    write_group(machine, "", memory__max=2 * MIB, memory__current=MIB)

    with pytest.raises(
        StartupError, match=r"asks for 1\.5 MiB, .* leaves 1 MiB \(2 MiB, of which 1 MiB are used\)"
    ):
        limits.check_budget(3 * MIB // 2, machine)

    limits.check_budget(MIB, machine)


def test_what_an_earlier_daemon_holds_is_there_already(machine: Machine) -> None:
    enter_group(machine, "0::/")
    write_group(machine, "", memory__max=2 * MIB, memory__current=3 * MIB // 2)

    limits.check_budget(3 * MIB // 2, machine, held=MIB)
    with pytest.raises(
        StartupError,
        match=r"leaves 1\.5 MiB \(2 MiB, of which 512 KiB are used\): take --memory 1\d*MiB or less",
    ):
        limits.check_budget(2 * MIB, machine, held=MIB)


def test_the_default_budget_heeds_the_control_group(machine: Machine) -> None:
    enter_group(machine, "0::/")
    write_group(machine, "", memory__max=200 * MIB + 12345, memory__current=0)

    budget = limits.default_budget(machine)

    assert 49 * MIB < budget <= 50 * MIB + 12345
    assert budget % os.sysconf("SC_PAGE_SIZE") == 0


def test_a_used_up_control_group_leaves_no_default(machine: Machine) -> None:
    enter_group(machine, "0::/")
    write_group(machine, "", memory__max=MIB, memory__current=2 * MIB)

    with pytest.raises(StartupError, match="the memory limits leave 0 B"):
        limits.default_budget(machine)


def test_this_machine_allows_its_own_default() -> None:
    budget = limits.default_budget()

    assert 0 < budget <= limits.shm_free()
    limits.check_budget(budget)


def test_the_soft_limit_of_descriptors_rises_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(512, before[1]), before[1]))

        assert limits.raise_nofile() == before[1]
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
