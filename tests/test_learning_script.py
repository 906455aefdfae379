"""Training from a script elsewhere, on what it defines itself."""

import sys

from tests.processes import ROOT, output

# Without `if __name__ == "__main__"`. Its environment is in no module, and needs one beside it.
SCRIPT = """
import sys
sys.path.append({root!r})
import gymnasium, numpy as np, psutil, torch
from es import count_outputs, learn
from lengths import LENGTH

print("The script runs.", flush=True)

class Walk(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return np.zeros(2, np.float32), {{}}

    def step(self, action):
        self.steps += 1
        seen = np.full(2, self.steps / LENGTH, np.float32)
        return seen, float(action), self.steps == LENGTH, False, {{}}

class Doubled(gymnasium.RewardWrapper):
    def reward(self, reward):
        return 2 * reward

class Net(torch.nn.Linear):
    def __init__(self, observations, actions):
        super().__init__(observations.shape[0], count_outputs(actions))

    def forward(self, observation, state):
        return super().forward(observation)

gymnasium.register("mine/Walk-v3", lambda: Walk())
run = learn(
    env_name="mine/Walk-v3", net=Net, env_wrapper=[Doubled], target_return=2 * LENGTH,
    seed=1, workers=2,
)
print(run.solved, run.path, run.policy.env_id, psutil.Process().children())
"""


def test_a_script_elsewhere_trains_on_what_it_defines_itself(tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "lengths.py").write_text("LENGTH = 7\n")
    (folder / "script.py").write_text(SCRIPT.format(root=str(ROOT)))
    said = output(sys.executable, folder / "script.py")
    assert said.count("The script runs.") == 1
    assert said.count("\nSolved: mean 14.00") == 1
    assert "\n  python -m es --test --no-render --restore " in said
    assert "\nTrue checkpoints/mine/Walk-v3 mine/Walk-v3 []\n" in said
    # Others play it once its parts lie in a module.
    (folder / "parts.py").write_text(SCRIPT.format(root=str(ROOT)).partition("run = ")[0])
    tested = output(
        sys.executable, ROOT / "main.py", "--test", "--no-render", "--episodes", 1,
        "--restore", "../checkpoints/mine/Walk-v3", "--env-name", "parts:mine/Walk-v3",
        "--net", "parts:Net", "--env-wrapper", "parts:Doubled", cwd=folder,
    )  # fmt: skip
    assert "mean 14" in tested


def run_script(folder, name, text):
    """Returns what a script prints that is run from this folder."""
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"import sys; sys.path.append({str(ROOT)!r})\nfrom es import learn\n{text}")
    return output(sys.executable, name, cwd=folder)


def test_a_script_registers_its_environment_by_name(tmp_path):
    out = run_script(
        tmp_path, "script.py",
        "import gymnasium\n"
        "from gymnasium.envs.classic_control import CartPoleEnv\n"
        "class Mine(CartPoleEnv): pass\n"
        "gymnasium.register('Mine-v0', '__main__:Mine', max_episode_steps=9)\n"
        "run = learn(env_name='Mine-v0', n=2, seed=0, workers=2, max_frames=1, silent=True)\n"
        "print(run.policy.env_id, run.history['episode_length_mean'])\n",
    )  # fmt: skip
    assert out == "Mine-v0 [9.]\n"


def test_a_script_in_another_folder_finds_the_modules_of_the_current_one(tmp_path):
    (tmp_path / "mine.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Mine-v0', 'gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    out = run_script(
        tmp_path, "scripts/script.py",
        "run = learn(env_name='mine:Mine-v0', n=2, workers=1, max_frames=1, silent=True)\n"
        "print(run.policy.env_id)\n",
    )  # fmt: skip
    assert out == "mine:Mine-v0\n"
