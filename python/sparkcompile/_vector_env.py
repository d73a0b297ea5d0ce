"""Closed loops as a vector environment of Gymnasium; a module of its own, since Gymnasium is optional."""

from __future__ import annotations

from typing import Any, Callable

import numpy as np
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv as Base
from gymnasium.vector.utils import batch_space

from ._errors import InputError
from .sim import Loops

_CURVATURE, _BRAKING, _ACCEL = 0.2, -12.0, 6.0  # beyond what a car does


class VectorEnv(Base):  # type: ignore[misc]
    """See sparkcompile.sim.vector_env."""

    metadata = {"autoreset_mode": AutoresetMode.NEXT_STEP, "render_modes": []}

    def __init__(self, scenarios: Any, n: int, device: str | None, reward: Callable[..., Any] | None) -> None:
        self._loops = Loops(scenarios, n, 1, device)
        self._names = [m.name for m in self._loops.metrics]
        self._places = {o.name: k for k, o in enumerate(self._loops.observations)}
        self._reward = reward or self._progress
        self.num_envs = self._loops.loops
        self.scenarios = [s for s in self._loops.scenarios for _ in range(n)]
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (len(self._places),), np.float32)
        low, high = np.array([-_CURVATURE, _BRAKING], np.float32), np.array([_CURVATURE, _ACCEL], np.float32)
        self.single_action_space = spaces.Box(low, high, dtype=np.float32)
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        self._seed: int | None = None
        self._numbers = np.zeros(self.num_envs, np.int64)
        self._done = np.zeros(self.num_envs, bool)
        self._before = np.zeros((self.num_envs, len(self._names)))
        self._steps = np.zeros(self.num_envs, np.int64)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Starts all loops: with a seed at their first draws, without one at draws that they have not had."""
        if options:
            raise InputError(f"options {sorted(options)} are not known: this environment has none")
        if seed is not None or self._seed is None:
            super().reset(seed=seed)
            self._seed = int(self.np_random_seed) if seed is None else int(seed)
            self._numbers = np.arange(self.num_envs, dtype=np.int64) % self._loops.n
        else:
            self._numbers += self._loops.n
        self._loops.reset(self._numbers, self._seed)
        self._done[:] = False
        self._before[:] = 0
        self._steps[:] = 0
        return self._observe(), {}

    def _observe(self) -> Any:
        return np.ascontiguousarray(self._loops.observe().T)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        actions = np.asarray(actions, np.float32)
        if self._seed is None:
            raise InputError("the environment has not been reset: call reset() first")
        if actions.shape != (self.num_envs, 2):
            raise InputError(f"actions have shape {actions.shape}, want ({self.num_envs}, 2): curvature and acceleration of every loop")
        bad = ~np.isfinite(actions).all(axis=1) & ~self._done
        if bad.any():
            i = int(np.argmax(bad))
            raise InputError(f"step {self._steps[i]}: the action of loop {i}, scenario {self.scenarios[i]!r}, is {actions[i].tolist()}")
        again = self._done.copy()  # ended in the step before: this one resets them
        alive, metrics = self._loops.step(np.where(again[:, None], 0, actions).T)
        done = ~alive & ~again
        ended = metrics[:, [self._names.index("collision"), self._names.index("diverged")]].any(axis=1)
        terminated, truncated = done & ended, done & ~ended
        if again.any():
            self._numbers[again] += self._loops.n
            self._loops.reset(np.where(again, self._numbers, -1), self._seed)
        seen = self._observe()
        by_name = {name: metrics[:, k] for k, name in enumerate(self._names)}
        reward = np.asarray(self._reward(seen, actions, by_name), np.float64)
        if reward.shape != (self.num_envs,):
            raise InputError(f"reward returned shape {reward.shape}, want ({self.num_envs},)")
        reward = np.where(again, 0.0, reward)
        self._before = np.where(again[:, None], 0, metrics)
        self._steps = np.where(again, 0, self._steps + 1)
        self._done = done
        infos: dict[str, Any] = {}
        if done.any():
            for name, values in by_name.items():
                infos[name], infos["_" + name] = np.where(done, values, 0.0), done.copy()
        return seen, reward, terminated, truncated, infos

    def _progress(self, seen: Any, _: Any, metrics: dict[str, Any]) -> Any:
        way = metrics["progress"] - self._before[:, self._names.index("progress")]
        fell = np.maximum(metrics["collision"], metrics["diverged"]) > 0
        return way - seen[:, self._places["offset"]].astype(np.float64) ** 2 - 100.0 * fell

    def close_extras(self, **_: Any) -> None:
        self._loops.close()
