"""The cores of containers and batch jobs, read from files like the kernel's."""

import pytest

from es.errors import UsageError
from es.rollouts.processes import CORES, cores
from tests.processes import run_python


@pytest.fixture
def system(tmp_path, monkeypatch):
    """Returns the root of a host of 96 cores with these control groups and files."""
    monkeypatch.delenv(CORES, raising=False)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(96)), raising=False)

    def write(groups, files):
        files = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
        for name, text in {"proc/self/cgroup": groups, **files}.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        pytest.param("1:name=systemd:/\n0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="a quota"),
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
        pytest.param("0::/hosts/path\n", {"cpu.max": "200000 100000\n"}, 2, id="in a container"),
    ],
)
def test_a_container_has_the_cores_of_its_quota(system, groups, files, expected):
    assert cores(system(groups, files)) == expected


def test_the_affinity_mask_and_the_variable_limit_the_cores_too(system, monkeypatch):
    root = system("0::/\n", {"cpu.max": "400000 100000\n"})
    (root / "proc/self/cgroup").unlink()  # another system
    assert cores(root) == 96
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: {3}, raising=False)
    assert cores(root) == 1
    monkeypatch.setenv(CORES, "7")
    assert cores(root) == 7
    for wrong in ("two", "0", "-1"):
        monkeypatch.setenv(CORES, wrong)
        with pytest.raises(UsageError, match=f"ES_CORES={wrong}: must be"):
            cores(root)


def test_the_limit_on_open_files_is_raised_for_the_fork_server():
    program = """
import resource
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (100, hard))
from es.errors import UsageError
from es.rollouts.processes import start_forkserver
start_forkserver([])
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    assert int(run_python(program).stdout) > 100
