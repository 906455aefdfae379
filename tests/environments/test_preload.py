import pytest

from tests.processes import run_python


@pytest.mark.parametrize(
    ("name", "loaded"),
    [("HalfCheetah-v5", True), ("CartPole-v1", False), ("Nonsense-v0", False), ("", False)],
)
def test_the_simulator_of_the_environment_is_imported(name, loaded):
    program = "import es.environments.preload, sys; print('mujoco' in sys.modules)"
    result = run_python(program, ES_PRELOAD=name)
    assert (result.stdout, result.stderr) == (f"{loaded}\n", "")
