"""Synthetic dynamical systems, integrated in float64: the same seed gives the same trajectories.

pendulum: without friction; its energy is known. lorenz: three coupled equations whose orbits diverge (Lorenz 1963).
mackey_glass: one equation with a delay (Mackey & Glass 1977). string: fixed at both ends, its energy is known.
reaction: a front that spreads along a line (Fisher 1937; Kolmogorov, Petrovsky & Piskunov 1937).
Letters: N trajectories, T time steps, D numbers of a state, C numbers of it that are seen, X places on a line.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Change = Callable[[Numbers], Numbers]
PLACES = 24
"""Places on a string or line."""
DELAY, MG_STEP = 17.0, 0.1
"""Delay of Mackey–Glass, and its integration step."""


@dataclass(frozen=True)
class System:
    """How a system starts, moves and looks."""

    columns: tuple[str, ...]
    step: float
    """Time from one sample to the next."""
    start: Callable[[np.random.Generator, int], Numbers]
    """States (N, D) to begin with."""
    advance: Change
    """States one sample later."""
    seen: Change = lambda state: state
    """(…, D) to (…, C)"""
    energy: Change | None = None
    """(…, C) to (…), where it is known and does not change."""
    settle: int = 0
    """Samples that are left out at the beginning, until the state is on the attractor."""
    exponent: float = 0.0
    """Largest Lyapunov exponent; 0: neighbouring states do not diverge."""


def simulate(system: System, count: int, steps: int, seed: int) -> Numbers:
    """Trajectories (N, T, C)."""
    state = system.start(np.random.default_rng(seed), count)
    for _ in range(system.settle):
        state = system.advance(state)
    found = np.empty((count, steps, len(system.columns)))
    for at in range(steps):
        found[:, at] = system.seen(state)
        state = system.advance(state)
    return found


def runge_kutta(change: Change, step: float, times: int) -> Change:
    """Some steps of the classical method of fourth order."""

    def advance(state: Numbers) -> Numbers:
        for _ in range(times):
            a = change(state)
            b = change(state + step / 2 * a)
            c = change(state + step / 2 * b)
            state = state + step / 6 * (a + 2 * b + 2 * c + change(state + step * c))
        return state

    return advance


def _pendulum(state: Numbers) -> Numbers:
    return np.stack([state[:, 1], -np.sin(state[:, 0])], 1)


def _lorenz(state: Numbers) -> Numbers:
    x, y, z = state.T
    return np.stack([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z], 1)


def _mackey_glass(past: Numbers) -> Numbers:
    """The values of the last DELAY time units, one unit later; the delayed value between two samples is their mean."""

    def change(now: Numbers, before: Numbers) -> Numbers:
        return 0.2 * before / (1 + before**10) - 0.1 * now

    for _ in range(round(1 / MG_STEP)):
        now, first, last = past[:, -1], past[:, 0], past[:, 1]
        middle = (first + last) / 2
        a = change(now, first)
        b = change(now + MG_STEP / 2 * a, middle)
        c = change(now + MG_STEP / 2 * b, middle)
        new = now + MG_STEP / 6 * (a + 2 * b + 2 * c + change(now + MG_STEP * c, last))
        past = np.concatenate([past[:, 1:], new[:, None]], 1)
    return past


def _bent(u: Numbers) -> Numbers:
    """Second differences along a line whose ends are fixed at 0, in units of 1/PLACES."""
    wide = np.pad(u, [(0, 0)] * (u.ndim - 1) + [(1, 1)])
    return (wide[..., 2:] - 2 * u + wide[..., :-2]) * PLACES**2


def _string(state: Numbers, step: float = 0.005, times: int = 10) -> Numbers:
    """Leapfrog steps, which keep the energy (Störmer–Verlet)."""
    u, v = np.split(state, 2, 1)
    for _ in range(times):
        v = v + step / 2 * _bent(u)
        u = u + step * v
        v = v + step / 2 * _bent(u)
    return np.concatenate([u, v], 1)


def _string_energy(state: Numbers) -> Numbers:
    u, v = np.split(state, 2, -1)
    wide = np.pad(u, [(0, 0)] * (u.ndim - 1) + [(1, 1)])
    return np.asarray(((v**2).sum(-1) + ((wide[..., 1:] - wide[..., :-1]) ** 2).sum(-1) * PLACES**2) / 2)


def _plucked(dice: np.random.Generator, count: int) -> Numbers:
    """A sum of the lowest four modes, at rest."""
    places = np.arange(1, PLACES + 1) / (PLACES + 1)
    modes = np.sin(np.pi * np.arange(1, 5)[:, None] * places)
    u = dice.normal(size=(count, 4)) / np.arange(1, 5) @ modes
    return np.concatenate([u, np.zeros_like(u)], 1)


def _reaction(u: Numbers) -> Numbers:
    """Diffusion and logistic growth; nothing flows through the ends."""
    wide = np.pad(u, ((0, 0), (1, 1)), mode="edge")
    return 0.5 * (wide[:, 2:] - 2 * u + wide[:, :-2]) + 0.5 * u * (1 - u)


def _bump(dice: np.random.Generator, count: int) -> Numbers:
    centre, width = dice.uniform(0, PLACES, (count, 1)), dice.uniform(1, 4, (count, 1))
    return dice.uniform(0.2, 0.9, (count, 1)) * np.exp(-(((np.arange(PLACES) - centre) / width) ** 2))


SYSTEMS = {
    "pendulum": System(
        ("angle", "speed"),
        0.1,
        lambda dice, count: np.stack([dice.uniform(-2.5, 2.5, count), np.zeros(count)], 1),
        runge_kutta(_pendulum, 0.02, 5),
        energy=lambda state: np.asarray(state[..., 1] ** 2 / 2 - np.cos(state[..., 0])),
    ),
    "lorenz": System(
        ("x", "y", "z"),
        0.05,
        lambda dice, count: dice.normal(size=(count, 3)) * 5 + [0, 0, 25],
        runge_kutta(_lorenz, 0.01, 5),
        settle=200,
        exponent=0.906,  # Sprott 2003
    ),
    "mackey_glass": System(
        ("x",),
        1.0,
        lambda dice, count: (
            dice.uniform(0.8, 1.2, (count, 1)) + dice.normal(0, 0.05, (count, round(DELAY / MG_STEP) + 1))
        ),
        _mackey_glass,
        seen=lambda past: past[..., -1:],
        settle=300,
        exponent=0.0050,  # by the growth of small distances, see its test
    ),
    "string": System(
        tuple([f"u{i}" for i in range(PLACES)] + [f"v{i}" for i in range(PLACES)]),
        0.05,
        _plucked,
        _string,
        energy=_string_energy,
    ),
    "reaction": System(tuple(f"u{i}" for i in range(PLACES)), 0.5, _bump, runge_kutta(_reaction, 0.1, 5)),
}
"""By name."""
