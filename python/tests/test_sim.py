import tempfile
import unittest
from pathlib import Path

import numpy as np

from sparkcompile import ClosedError, InputError, sim

FILE = """
scenarios:
  - name: short
    set: {duration: 1, noise_offset: 0.1, curve_start: 0, curve_ramp: 10}
    vary: {curvature: {uniform: [-0.004, 0.004]}, drop: {uniform: [0, 0.3]}}
  - name: wall
    set: {duration: 3, speed: 20, car0_present: 1, car0_speed0: 0, car0_speed1: 0}
    vary: {car0_gap: {uniform: [8, 12]}}
"""


def setUpModule():
    global file
    folder = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(folder.cleanup)
    file = Path(folder.name) / "s.yaml"
    file.write_text(FILE)


def feedforward(step, seen):
    """The built-in algorithm of that name, without a car in front."""
    return seen["road1"], np.clip(np.float32(0.5) * (seen["cruise"] - seen["speed"]), -2, 1.5)


class Batches(unittest.TestCase):
    def test_a_function_drives_as_the_built_in_algorithm(self):
        want = sim.run_batch([file], "feedforward", n=3, seed=5)
        got = sim.run_batch(file, feedforward, n=3, seed=5)
        self.assertEqual(want.scenarios, ("short", "wall"))
        self.assertEqual(want.metrics["offset_max"].shape, (2, 3))
        for name in want.params:
            np.testing.assert_array_equal(want.params[name], got.params[name])
        for name in ("offset_max", "progress", "duration", "lateral_jerk"):  # of loops without a car
            np.testing.assert_allclose(got.metrics[name][0], want.metrics[name][0], atol=1e-4, err_msg=name)
        self.assertEqual(len(set(want.params["curvature"][0])), 3)
        self.assertTrue(got.failed[1].all() and not got.failed[0].any())
        self.assertEqual(got.metrics["collision"][1].tolist(), [1, 1, 1])
        other = sim.run_batch(file, feedforward, n=3, seed=6)
        self.assertNotEqual(other.metrics["progress"][1].tolist(), got.metrics["progress"][1].tolist())

    def test_what_a_function_may_not_return(self):
        for answer, says in (
            (lambda step, seen: (seen["road1"][:3], seen["speed"][:3]), r"algorithm <lambda>: step 0: commands have shape \(2, 3\), want \(2, 4\)"),
            (lambda step, seen: None, r"step 0: commands have shape \(1,\), want \(2, 4\)"),
            (lambda step, seen: "fast", "step 0: commands are no numbers"),
            (lambda step, seen: (0 * seen["speed"], np.where([0, 0, 0, step == 2], np.nan, 0)), 'step 2: acceleration of loop 3, scenario "wall", is NaN'),
        ):
            with self.assertRaisesRegex(InputError, says) as raised:
                sim.run_batch(file, answer, n=2)
            self.assertEqual(str(raised.exception).count(": step "), 1, raised.exception)
        with self.assertRaisesRegex(ZeroDivisionError, "division"):
            sim.run_batch(file, lambda step, seen: 1 / 0)
        for arguments, says in (
            ((["curv"], "pid"), 'no family "curv"; the nearest'), ((file, "pit"), 'no algorithm "pit"'), ((file, "pid", 0), "n is 0"),
            (([], "pid"), "there is no scenario"), (([file, file], "pid"), 'scenario "short" is there twice'), ((file, "pid", 1, -1), "seed is -1"),
            ((file, "pid", 1.5), "n is 1.5: want a whole number"), ((file, "pid", "3"), "n is a str: want a whole number"),
            ((file, "pid", 1, 1.5), "seed is 1.5: want a whole number"), ((file, 3), "algorithm is 3: want a path"), (([3.5], "pid"), "a scenario is 3.5: want a path"),
        ):  # fmt: skip
            with self.assertRaisesRegex(InputError, says):
                sim.run_batch(*arguments)

    def test_loops_are_closed_once(self):
        loops = sim.Loops(file)
        with self.assertRaisesRegex(InputError, "reset them first"):
            loops.observe()
        with self.assertRaisesRegex(InputError, "numbers are float64, want integers"):
            loops.reset(np.full(loops.loops, 0.5))
        loops.close()
        loops.close()
        with self.assertRaises(ClosedError):
            loops.observe()


class Environments(unittest.TestCase):
    def setUp(self):
        try:
            import gymnasium  # noqa: F401
        except ImportError:
            self.skipTest("Gymnasium is not installed")

    def env(self, n=2, **more):
        env = sim.vector_env(file, n, **more)
        self.addCleanup(env.close)
        return env

    def drive(self, env, seed, steps):
        seen, info = env.reset(seed=seed)
        self.assertEqual(info, {})
        out = [(seen, None, None, None, {})]
        for k in range(steps):
            out.append(env.step(np.full((env.num_envs, 2), 0.01 * np.sin(k), np.float32)))
        return out

    def test_spaces_and_seeds(self):
        import gymnasium
        from gymnasium.vector.utils import batch_space

        env = self.env()
        self.assertIsInstance(env, gymnasium.vector.VectorEnv)
        self.assertEqual(env.num_envs, 4)
        self.assertEqual(env.observation_space, batch_space(env.single_observation_space, 4))
        self.assertEqual(env.action_space, batch_space(env.single_action_space, 4))
        first, again, other = self.drive(env, 3, 30), self.drive(env, 3, 30), self.drive(env, 4, 3)
        for (seen, *rest), (same, *others) in zip(first, again):
            self.assertTrue(env.observation_space.contains(seen))
            np.testing.assert_array_equal(seen, same)
            for a, b in zip(rest[:3], others[:3]):
                np.testing.assert_array_equal(a, b)
        self.assertFalse(np.array_equal(first[0][0], other[0][0]))
        for seen, reward, terminated, truncated, _ in first[1:]:
            self.assertEqual((reward.shape, terminated.dtype, truncated.dtype), ((4,), np.bool_, np.bool_))
        env.reset(seed=3)
        fresh, _ = env.reset()
        self.assertFalse(np.array_equal(fresh, first[0][0]), "without a seed the next draws come")

    def test_ended_loops_are_reset_in_the_next_step(self):
        env = self.env()
        out = self.drive(env, 3, 30)
        time = [o.name for o in env._loops.observations].index("time")
        ends = {}
        for k, (seen, reward, terminated, truncated, infos) in enumerate(out[1:], 1):
            for i in range(4):
                if terminated[i] or truncated[i]:
                    self.assertTrue(infos["_duration"][i])
                    self.assertAlmostEqual(infos["duration"][i], seen[i, time], places=5)
                    self.assertEqual(terminated[i], infos["collision"][i] > 0)
                    ends.setdefault(i, k)
                    after = out[k + 1] if k + 1 < len(out) else None
                    if after:
                        self.assertEqual((after[0][i, time], after[1][i], after[2][i], after[3][i]), (0, 0, False, False))
        self.assertEqual((ends[0], ends[1]), (20, 20))
        self.assertTrue(out[20][3][:2].all() and not out[20][2][:2].any(), "the duration truncates")
        self.assertTrue(out[ends[2]][2][2], "a collision terminates")
        self.assertLess(out[ends[2]][1][2], -90)

    def test_an_episode_is_the_loop_of_run_batch(self):
        env = self.env()
        _, _ = env.reset(seed=5)
        want = sim.run_batch(file, lambda step, seen: (0 * seen["speed"], 0 * seen["speed"]), n=4, seed=5)
        got = {0: [], 1: []}
        for _ in range(42):
            *_, infos = env.step(np.zeros((4, 2), np.float32))
            for i in got:
                if infos and infos["_offset_max"][i]:
                    got[i].append(infos["offset_max"][i])
        self.assertEqual(got[0], want.metrics["offset_max"][0][[0, 2]].tolist())
        self.assertEqual(got[1], want.metrics["offset_max"][0][[1, 3]].tolist())

    def test_wrappers_of_gymnasium(self):
        from gymnasium.wrappers.vector import NormalizeObservation, RecordEpisodeStatistics

        env = RecordEpisodeStatistics(NormalizeObservation(self.env(reward=lambda seen, actions, metrics: np.ones(len(seen)))))
        env.reset(seed=1)
        for _ in range(20):
            *_, truncated, infos = env.step(env.action_space.sample())
        self.assertEqual(infos["episode"]["r"][0], 20)
        self.assertTrue(infos["_episode"][0])

    def test_what_it_refuses(self):
        env = self.env()
        with self.assertRaisesRegex(InputError, "has not been reset"):
            env.step(np.zeros((4, 2)))
        env.reset(seed=1)
        with self.assertRaisesRegex(InputError, r"actions have shape \(4, 3\), want \(4, 2\)"):
            env.step(np.zeros((4, 3)))
        bad = np.zeros((4, 2))
        env.step(bad)
        bad[2, 1] = np.nan
        with self.assertRaisesRegex(InputError, r"step 1: the action of loop 2, scenario 'wall', is \[0.0, nan\]"):
            env.step(bad)
        with self.assertRaisesRegex(InputError, "options"):
            env.reset(options={"x": 1})


if __name__ == "__main__":
    unittest.main()
