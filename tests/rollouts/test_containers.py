"""The limits of containers and batch jobs, read from files like the kernel's."""

import psutil
import pytest
from es.rollouts.worker_processes import free_memory

from es.rollouts.processes import CORES, cores

MIB = 2**20
V1_GROUPS = "4:memory:/docker/a1\n2:cpu,cpuacct:/docker/a1\n1:name=systemd:/docker/a1\n"


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Returns the root of a host of 96 cores and 256 GiB with these control groups and files."""
    monkeypatch.delenv(CORES, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(96)), raising=False)
    memory = psutil.virtual_memory()._replace(available=256 * 1024 * MIB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)

    def write(groups, files):
        for name, text in {"proc/self/cgroup": groups, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(str(text))
        return tmp_path

    return write


def in_folder(folder, files):
    return {f"sys/fs/cgroup/{folder}{name}": text for name, text in files.items()}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="version 2"),
        pytest.param("0::/\n", {"cpu.max": "50000 100000\n"}, 1, id="half a core"),
        pytest.param("0::/\n", {"cpu.max": "250000 100000\n"}, 3, id="rounded up"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, 96, id="no quota"),
        pytest.param("0::/\n", {"cpu.max": "20000000 100000\n"}, 96, id="a quota above the host"),
        pytest.param(
            "0::/job/step\n",
            {"job/cpu.max": "400000 100000\n", "job/step/cpu.max": "max 100000\n"},
            4,
            id="of the group above",
        ),
        pytest.param(
            V1_GROUPS,  # the host's path, which does not exist in the container
            {"cpu/cpu.cfs_quota_us": "200000\n", "cpu/cpu.cfs_period_us": "100000\n"},
            2,
            id="version 1",
        ),
        pytest.param(
            V1_GROUPS,
            {"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"},
            96,
            id="version 1 without a quota",
        ),
    ],
)
def test_a_container_has_the_cores_of_its_quota(system, groups, files, expected):
    assert cores(system(groups, in_folder("", files))) == expected


def test_the_affinity_mask_and_the_variable_limit_the_cores_too(system, monkeypatch):
    root = system("0::/\n", in_folder("", {"cpu.max": "400000 100000\n"}))
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3}, raising=False)
    assert cores(root) == 1
    monkeypatch.setenv(CORES, "7")
    assert cores(root) == 7


def test_a_container_has_the_memory_that_its_limit_leaves(system):
    files = {
        "memory.max": 4096 * MIB,
        "memory.current": 1024 * MIB,
        "memory.stat": f"anon 5\ninactive_file {256 * MIB}\nactive_file 7\n",
    }
    assert free_memory(system("0::/\n", in_folder("", files))) == 3328 * MIB
    files = {"memory.max": "max\n"}
    assert free_memory(system("0::/\n", in_folder("", files))) == 256 * 1024 * MIB
    files = {
        "memory.limit_in_bytes": 2048 * MIB,
        "memory.usage_in_bytes": 1024 * MIB,
        "memory.stat": f"inactive_file 1\ntotal_inactive_file {512 * MIB}\n",
    }
    assert free_memory(system(V1_GROUPS, in_folder("memory/", files))) == 1536 * MIB


def test_a_system_without_control_groups_has_its_own_cores_and_memory(system, tmp_path):
    system("", {})
    (tmp_path / "proc/self/cgroup").unlink()
    assert cores(tmp_path) == 96
    assert free_memory(tmp_path) == 256 * 1024 * MIB
