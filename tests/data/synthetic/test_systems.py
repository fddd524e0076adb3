"""Synthetic systems: integrated rightly, deterministic, with the exponents that are stated."""

from __future__ import annotations

import numpy as np
import pytest

from headway.data.synthetic.systems import SYSTEMS, System, _lorenz, runge_kutta, simulate


def lyapunov_exponent(system: System, count: int = 16, steps: int = 2000, seed: int = 0, apart: float = 1e-7) -> float:
    """The growth rate of the distance of two neighbouring trajectories, brought together again after each sample
    (Benettin et al. 1980)."""
    dice = np.random.default_rng(seed)
    state = system.start(dice, count)
    for _ in range(max(system.settle, steps // 10)):
        state = system.advance(state)
    gap = dice.normal(size=state.shape)
    gap *= apart / np.linalg.norm(gap, axis=1, keepdims=True)
    growth = 0.0
    for at in range(steps):
        other, state = system.advance(state + gap), system.advance(state)
        gap = other - state
        size = np.linalg.norm(gap, axis=1, keepdims=True)
        gap *= apart / size
        if at >= steps // 10:  # until then the gap turns into the direction that grows
            growth += float(np.log(size / apart).mean())
    return growth / (system.step * (steps - steps // 10))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_seed_gives_the_same_trajectories(name: str) -> None:
    system = SYSTEMS[name]
    one, again, other = (simulate(system, 3, 20, seed) for seed in (1, 1, 2))
    assert one.shape == (3, 20, len(system.columns)) and np.isfinite(one).all()
    assert (one == again).all() and not np.allclose(one, other)


@pytest.mark.parametrize(("name", "drift"), [("pendulum", 1e-7), ("string", 0.01)])
def test_the_energy_stays(name: str, drift: float) -> None:
    system = SYSTEMS[name]
    assert system.energy is not None
    energy = system.energy(simulate(system, 16, 300, 0))
    assert abs(energy - energy[:, :1]).max() < drift * energy.std()


def test_the_integrator_is_of_fourth_order() -> None:
    """Half the step, a sixteenth of the error."""
    start = np.array([[1.0, 2.0, 20.0]])
    exact = runge_kutta(_lorenz, 0.1 / 512, 512)(start)
    coarse, fine = (abs(runge_kutta(_lorenz, 0.1 / times, times)(start) - exact).max() for times in (8, 16))
    assert 12 < coarse / fine < 22


def test_a_small_swing_has_the_period_of_a_pendulum() -> None:
    system = SYSTEMS["pendulum"]
    state = np.array([[0.01, 0.0]])
    for _ in range(round(2 * np.pi / system.step)):
        state = system.advance(state)
    assert state[0, 0] == pytest.approx(0.01, rel=0.01)


def test_a_string_comes_back_after_its_period() -> None:
    """The lowest mode of PLACES points between fixed ends has a known frequency."""
    system, count = SYSTEMS["string"], len(SYSTEMS["string"].columns) // 2
    mode = np.sin(np.pi * np.arange(1, count + 1) / (count + 1))
    period = 2 * np.pi / (2 * count * np.sin(np.pi / (2 * (count + 1))))
    state = np.concatenate([mode, np.zeros(count)])[None]
    for _ in range(round(period / system.step)):
        state = system.advance(state)
    assert np.allclose(state[0, :count], mode, atol=0.01)


def test_the_front_spreads_until_the_line_is_full() -> None:
    states = simulate(SYSTEMS["reaction"], 4, 150, 0)
    assert (np.diff(states.mean(2)) > -1e-12).all() and (states[:, -1] > 0.99).all()


@pytest.mark.parametrize(("name", "steps"), [("lorenz", 1000), ("mackey_glass", 2000)])
def test_the_exponents_are_those_of_neighbouring_trajectories(name: str, steps: int) -> None:
    system = SYSTEMS[name]
    found = lyapunov_exponent(system, count=16, steps=steps)
    assert found == pytest.approx(system.exponent, rel=0.12), found


def test_neighbours_of_a_pendulum_do_not_diverge() -> None:
    assert abs(lyapunov_exponent(SYSTEMS["pendulum"], count=8, steps=1500)) < 0.05
