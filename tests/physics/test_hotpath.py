from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from ptynb.exceptions import InvalidValueError
from ptynb.kernels import fused_gradient
from ptynb.kernels.hotpath_types import Detection, Illumination
from ptynb.physics import hotpath
from ptynb.physics.hotpath import (
    exit_waves,
    far_field_intensity,
    moved_probes,
    varied,
)
from ptynb.physics.losses import AmplitudeLoss, loss_of, make_loss
from ptynb.physics.torch_steps import intensity_of, shift_ramps
from tests.parametrization import all_pairs, case
from tests.raising import raises

WINDOWS = [(8, 8), (9, 7), (6, 10), (7, 12)]
LOSSES = ["amplitude", "poisson", "intensity"]
MEAN_COUNT = 3.0


@pytest.fixture(autouse=True, params=["compiled", "torch"])
def implementation(request, monkeypatch):
    """Everything here holds for the compiled steps of a CPU and for torch's of any device."""
    if request.param == "torch":
        monkeypatch.setattr(hotpath, "COMPILED", "none")
    return request.param


compiled_only = pytest.mark.parametrize("implementation", ["compiled"], indirect=True)


def complex_normal(generator, *shape):
    return torch.complex(*torch.randn(2, *shape, dtype=torch.float64, generator=generator))


class Problem:
    """A small batch with overlapping windows, rests of a pixel, counts that the model does not fit."""

    def __init__(self, window, modes, masked, name):
        generator = torch.Generator().manual_seed(7)
        self.object = complex_normal(generator, 15, 18)
        self.probe = complex_normal(generator, modes, *window)
        self.corners = torch.tensor([[0, 0], [3, 2], [15 - window[0], 18 - window[1]], [3, 2]])
        self.shifts = torch.rand(4, 2, dtype=torch.float64, generator=generator) - 0.5
        self.counts = torch.poisson(torch.full((4, *window), MEAN_COUNT, dtype=torch.float64), generator=generator)
        self.mask = (torch.rand(window, generator=generator) > 0.25).double() if masked else None
        self.name = name
        self.loss = make_loss(name, MEAN_COUNT)

    def intensities(self, object, probe, shifts):
        return hotpath.patterns(Illumination(object[None, None], self.corners, probe[None], shifts))

    def value(self, object, probe, shifts):
        return loss_of(self.intensities(object, probe, shifts), self.counts, self.mask, self.loss)

    @property
    def parts(self):
        return {"object": self.object, "probe": self.probe, "shifts": self.shifts}

    def gradients(self):
        leaves = {name: part.clone().requires_grad_() for name, part in self.parts.items()}
        self.value(**leaves).backward()
        return {name: leaf.grad for name, leaf in leaves.items()}


problems = pytest.mark.parametrize(
    "problem",
    [
        pytest.param((window, modes, masked, name), id=f"{name}-{window[0]}x{window[1]}-{modes}-{'mask' * masked}")
        for name, window, modes, masked in all_pairs(LOSSES, WINDOWS, (1, 3), (False, True))
    ],
    indirect=True,
)


@pytest.fixture
def problem(request):
    return Problem(*request.param)


def fourier_matrix(side):
    """The unitary DFT written out, and the frequencies [1/pixel] of its rows."""
    index = np.arange(side)
    frequency = np.where(index < (side + 1) // 2, index, index - side)
    return np.exp(-2j * np.pi * np.outer(frequency, index) / side) / np.sqrt(side), frequency / side


def moved_by_hand(field, shift):
    for axis, rest in enumerate(shift):
        matrix, frequency = fourier_matrix(field.shape[axis])
        factor = np.exp(-2j * np.pi * frequency * rest)
        factor[frequency == -0.5] = np.cos(np.pi * rest)
        mover = matrix.conj().T @ (factor[:, None] * matrix)
        field = mover @ field if axis == 0 else field @ mover.T
    return field


def intensities_by_hand(problem):
    object, probe = problem.object.numpy(), problem.probe.numpy()
    height, width = probe.shape[-2:]
    rows, columns = fourier_matrix(height)[0], fourier_matrix(width)[0]
    patterns = []
    for (y, x), shift in zip(problem.corners.numpy(), problem.shifts.numpy(), strict=True):
        patch = object[y : y + height, x : x + width]
        waves = [rows @ (moved_by_hand(mode, shift) * patch) @ columns.T for mode in probe]
        patterns.append(sum(np.abs(wave) ** 2 for wave in waves))
    return np.array(patterns)


def loss_by_hand(name, model, counts, floor, mask):
    if name == "amplitude":
        terms = (np.sqrt(model + floor) - np.sqrt(counts + floor)) ** 2
    elif name == "poisson":
        model, counts = model + floor, counts + floor
        terms = model - counts + counts * np.log(counts / model)
    else:
        terms = (model - counts) ** 2
    return (terms * (1 if mask is None else mask.numpy())).sum()


@problems
def test_patterns_and_value_are_those_of_a_transform_written_out(problem):
    expected = intensities_by_hand(problem)
    np.testing.assert_allclose(problem.intensities(**problem.parts).numpy(), expected, rtol=1e-10, atol=1e-12)
    value = loss_by_hand(problem.name, expected, problem.counts.numpy(), problem.loss.floor, problem.mask)
    assert problem.value(**problem.parts).item() == pytest.approx(value, rel=1e-12)


def central_difference(function, step):
    """The derivative at 0 to fourth order in the step."""
    return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)


@problems
def test_in_one_step_or_in_three_together_or_alone_patterns_and_gradients_are_the_same(problem):
    whole, given = problem.gradients(), ("object", "probe", "shifts", "corners", "counts", "mask")
    before = [None if getattr(problem, name) is None else getattr(problem, name).clone() for name in given]
    for name, part in problem.parts.items():
        leaf = part.clone().requires_grad_()
        (-3.0 * problem.value(**{**problem.parts, name: leaf})).backward()
        torch.testing.assert_close(leaf.grad, -3.0 * whole[name], rtol=1e-13, atol=1e-15 * whole[name].abs().max())
    for name, values in zip(given, before, strict=True):
        assert values is None or torch.equal(getattr(problem, name), values), f"{name} was overwritten"
    leaves = {name: part.clone().requires_grad_() for name, part in problem.parts.items()}
    probes = moved_probes(leaves["probe"], leaves["shifts"])
    intensity = far_field_intensity(exit_waves(leaves["object"][None, None], problem.corners, probes))
    torch.testing.assert_close(intensity.detach(), problem.intensities(**problem.parts), rtol=1e-13, atol=1e-13)
    loss_of(intensity, problem.counts, problem.mask, problem.loss).backward()
    for name, leaf in leaves.items():
        torch.testing.assert_close(leaf.grad, whole[name], rtol=1e-11, atol=1e-13 * whole[name].abs().max().item())


def differentiable_loss(problem, object, probe, shifts):
    """The same model by operations that torch records: no slope of ours is behind its gradient."""
    height, width = probe.shape[-2:]
    patches = torch.stack([object[y : y + height, x : x + width] for y, x in problem.corners.tolist()])
    moved = torch.fft.ifft2(torch.fft.fft2(probe) * shift_ramps(shifts, (height, width))[:, None])
    model = torch.fft.fft2(moved * patches[:, None], norm="ortho").abs().square().sum(1)
    floor, counts = problem.loss.floor, problem.counts
    if problem.name == "amplitude":
        terms = ((model + floor).sqrt() - (counts + floor).sqrt()).square()
    elif problem.name == "poisson":
        terms = model - counts + (counts + floor) * ((counts + floor).log() - (model + floor).log())
    else:
        terms = (model - counts).square()
    return (terms if problem.mask is None else terms * problem.mask).sum()


@problems
def test_gradients_are_those_of_automatic_differentiation_and_of_finite_differences(problem):
    leaves = {name: part.clone().requires_grad_() for name, part in problem.parts.items()}
    value, generator = differentiable_loss(problem, **leaves), torch.Generator().manual_seed(11)
    expected = dict(zip(leaves, torch.autograd.grad(value, tuple(leaves.values())), strict=True))
    assert problem.value(**problem.parts).item() == pytest.approx(value.item(), rel=1e-12)
    for part, gradient in problem.gradients().items():
        wanted, start = expected[part], problem.parts[part]
        with case(part):
            torch.testing.assert_close(gradient, wanted, rtol=1e-10, atol=1e-10 * wanted.abs().max().item())
        for _ in range(4):
            direction = complex_normal(generator, *start.shape)
            direction = direction if start.is_complex() else direction.real

            def along(step, part=part, start=start, direction=direction):
                return problem.value(**{**problem.parts, part: start + step * direction}).item()

            slope = torch.vdot(gradient.flatten(), direction.flatten()).real.item()
            # Measured over all these problems: at most 7e-10 of the slope; a slope small by chance has rounding.
            rounding = 1e-9 * gradient.norm().item()
            assert central_difference(along, 1e-4) == pytest.approx(slope, rel=1e-8, abs=rounding), part


def test_losses_add_over_the_batch():
    problem = Problem((8, 7), 2, True, "amplitude")
    whole, single = problem.value(**problem.parts).item(), []
    for some in (slice(0, 1), slice(1, 4)):
        part = Problem((8, 7), 2, True, "amplitude")
        part.corners, part.shifts, part.counts = part.corners[some], part.shifts[some], part.counts[some]
        single.append(part.value(**part.parts).item())
    assert sum(single) == pytest.approx(whole, rel=1e-13)


# Several slices, states and modes


def waves_by_hand(windows, probes, kernel):
    """Exit waves through windows (pattern, state, slice, y, x) by operations that torch records."""
    waves = probes[:, None] * windows[:, :, 0, None]
    for layer in range(1, windows.shape[2]):
        between = kernel if kernel.ndim == 2 else kernel[:, None, None]
        waves = torch.fft.ifft2(torch.fft.fft2(waves) * between) * windows[:, :, layer, None]
    return waves


@pytest.mark.parametrize(
    ("states", "slices", "modes", "each"), all_pairs((1, 2), (1, 2, 4), (1, 3), (False, True)), ids=str
)
def test_exit_waves_and_their_gradients_are_those_of_automatic_differentiation(states, slices, modes, each):
    generator = torch.Generator().manual_seed(5)
    corners = torch.tensor([[0, 0], [2, 1], [3, 4]])
    given = {
        "object": complex_normal(generator, states, slices, 9, 11),
        "probes": complex_normal(generator, 3, modes, 6, 7),
        "kernel": complex_normal(generator, *((3,) if each else ()), 6, 7),
    }
    weights = torch.rand(3, 6, 7, dtype=torch.float64, generator=generator)

    def by_hand(object, probes, kernel):
        windows = torch.stack([object[..., y : y + 6, x : x + 7] for y, x in corners.tolist()])
        return waves_by_hand(windows, probes, kernel)

    def ours(object, probes, kernel):
        return exit_waves(object, corners, probes, kernel)

    for wanted in (("object",), ("probes",), ("kernel",), ("object", "probes"), ("object", "probes", "kernel")):
        if wanted == ("kernel",) and slices == 1:
            continue
        gradients = []
        for function in (ours, by_hand):
            # Not leaves: what is given is used up.
            leaves = {name: part.clone().requires_grad_(name in wanted) for name, part in given.items()}
            waves = function(**{name: leaf * 1.0 for name, leaf in leaves.items()})
            assert waves.shape == (3, states, modes, 6, 7)
            (far_field_intensity(waves) * weights).sum().backward()
            gradients.append([leaves[name].grad for name in wanted])
        for name, found, expected in zip(wanted, *gradients, strict=True):
            if name == "kernel" and slices == 1:
                assert found is None or not found.any()
            else:
                torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11 * expected.abs().max().item())


@pytest.mark.parametrize(
    ("states", "slices", "modes", "own_probes", "still"),
    all_pairs((1, 2), (1, 3), (1, 3), (False, True), (False, True)),
    ids=str,
)
def test_near_field_patterns_and_their_gradients_are_those_of_automatic_differentiation(
    states, slices, modes, own_probes, still
):
    generator = torch.Generator().manual_seed(5)
    corners = torch.tensor([[0, 0], [2, 1], [3, 4]])
    kernel, propagator = complex_normal(generator, 6, 8), complex_normal(generator, 6, 8)
    given = {
        "object": complex_normal(generator, states, slices, 9, 12),
        "probes": complex_normal(generator, 3 if own_probes else 1, modes, 6, 8),
        "shifts": (torch.rand(3, 2, dtype=torch.float64, generator=generator) - 0.5) * (not still),
    }
    weights = torch.rand(3, 6, 8, dtype=torch.float64, generator=generator)

    def by_hand(object, probes, shifts):
        windows = torch.stack([object[..., y : y + 6, x : x + 8] for y, x in corners.tolist()])
        ramps = shift_ramps(shifts, (6, 8))
        moved = torch.fft.ifft2(torch.fft.fft2(probes) * ramps[:, None])
        back = (propagator * ramps.conj())[:, None, None]
        return torch.fft.ifft2(torch.fft.fft2(waves_by_hand(windows, moved, kernel)) * back).abs().square().sum((1, 2))

    def ours(object, probes, shifts):
        between = None if slices == 1 else kernel
        return hotpath.patterns(Illumination(object, corners, probes, shifts, between, propagator))

    wanted, found = [name for name in given if not (still and name == "shifts")], []
    for function in (ours, by_hand):
        leaves = {name: part.clone().requires_grad_(name in wanted) for name, part in given.items()}
        patterns = function(**leaves)
        (patterns * weights).sum().backward()
        found.append([patterns.detach(), *(leaves[name].grad for name in wanted)])
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-11 * right.abs().max().item())


@compiled_only
@pytest.mark.parametrize(
    ("loss", "dtype", "slices", "modes", "still", "own_probes", "near"),
    all_pairs(
        ("amplitude", "poisson"),
        (torch.uint8, torch.uint16, torch.int32, torch.float64),
        (1, 3),
        (1, 3),
        *[(False, True)] * 3,
    ),
    ids=str,
)
def test_the_misfit_is_the_loss_of_the_patterns(loss, dtype, slices, modes, still, own_probes, near):
    generator = torch.Generator().manual_seed(6)
    problem = Problem((8, 7), modes, True, loss)
    kernel = None if slices == 1 else complex_normal(generator, 8, 7)
    propagator = complex_normal(generator, 8, 7) if near else None
    parts = {
        "object": complex_normal(generator, 1, slices, 15, 18),
        "probes": complex_normal(generator, 4 if own_probes else 1, modes, 8, 7),
        "shifts": problem.shifts * (not still),
    }
    rows = torch.tensor([4, 0, 2, 1])
    held = torch.full((5, 8, 7), 9).to(dtype)
    for row, counts in zip(rows.tolist(), problem.counts, strict=True):
        held[row] = counts.to(dtype)
    moving = [name for name in parts if not (still and name == "shifts")]

    def one(object, probes, shifts):
        given = Illumination(object, problem.corners, probes, shifts, kernel, propagator)
        return hotpath.misfit(given, Detection(held, rows, problem.mask, problem.loss.floor, loss=loss))

    def two(object, probes, shifts):
        patterns = hotpath.patterns(Illumination(object, problem.corners, probes, shifts, kernel, propagator))
        return loss_of(patterns, problem.counts, problem.mask, problem.loss)

    found = []
    for function in (one, two):
        leaves = {name: part.clone().requires_grad_(name in moving) for name, part in parts.items()}
        value = function(**leaves)
        (-1.7 * value).backward()
        found.append((value.detach(), *(leaves[name].grad for name in moving)))
    for left, right in zip(*found, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-13 * right.abs().max().item())


NAMES = ["object", "probes", "shifts", "weights", "background"]


@compiled_only
@pytest.mark.parametrize(
    ("wanted", "threads", "patterns", "slices", "near"),
    all_pairs(
        (NAMES[:2], NAMES[:1], NAMES[1:2], NAMES[2:], NAMES[3:], NAMES), (1, 2, 3), (2, 40), (1, 3), (False, True)
    ),
    ids=lambda value: "+".join(value) if isinstance(value, list) else str(value),
)
def test_gradients_without_recording_are_those_with(wanted, threads, patterns, slices, near):
    """Of so many patterns that each thread adds up an object of its own, and of so few that it does not."""
    generator, before = torch.Generator().manual_seed(8), torch.get_num_threads()
    corners = torch.stack([torch.arange(patterns) % 13, torch.arange(patterns) % 14], 1)
    given = Illumination(
        complex_normal(generator, 1, slices, 20, 21),
        corners,
        complex_normal(generator, 1, 2, 8, 7),
        torch.rand(patterns, 2, dtype=torch.float64, generator=generator) - 0.5,
        None if slices == 1 else complex_normal(generator, 8, 7),
        complex_normal(generator, 8, 7) if near else None,
    )
    held = torch.poisson(torch.full((patterns, 8, 7), MEAN_COUNT), generator=generator)
    at_detector = torch.rand(patterns, dtype=torch.float64), torch.rand(8, 7, dtype=torch.float64)
    detection = Detection(held, None, None, 0.1, *at_detector)
    leaves = varied(given, detection)
    for name, leaf in zip(NAMES, leaves, strict=True):
        leaf.requires_grad_(name in wanted)
    torch.set_num_threads(threads)
    try:
        crossing = fused_gradient.CompiledDescent(given, detection, [True] * 5).cross.crossing
        assert crossing.alone == (patterns == 40)
        value, *gradients = hotpath.descent(given, detection, -1.7)
    finally:
        torch.set_num_threads(before)
    modelled = hotpath.patterns(given) * at_detector[0][:, None, None] + at_detector[1]
    expected = loss_of(modelled, held, None, AmplitudeLoss(0.1))
    (-1.7 * expected).backward()
    assert float(value) == pytest.approx(expected.item(), rel=1e-12)
    for name, gradient, leaf in zip(NAMES, gradients, leaves, strict=True):
        assert (gradient is not None) == (name in wanted)
        if gradient is not None:
            torch.testing.assert_close(gradient, leaf.grad, rtol=1e-11, atol=1e-12 * leaf.grad.abs().max().item())


@pytest.mark.parametrize("patterns", [1, 4])
def test_the_number_of_threads_changes_roundings_only(patterns):
    """Also where there are more threads than patterns."""
    problem, before = Problem((8, 7), 2, True, "amplitude"), torch.get_num_threads()
    problem.corners, problem.shifts, problem.counts = (
        array[:patterns] for array in (problem.corners, problem.shifts, problem.counts)
    )
    expected = problem.gradients()
    for threads in (1, 2, 3, 7):
        torch.set_num_threads(threads)
        try:
            found, again = problem.gradients(), problem.gradients()
        finally:
            torch.set_num_threads(before)
        for name, gradient in found.items():
            with case(threads, "threads", name):
                assert torch.equal(gradient, again[name])
                atol = 1e-14 * expected[name].abs().max().item()
                torch.testing.assert_close(gradient, expected[name], rtol=1e-13, atol=atol)


def test_intensities_add_over_states_and_modes_and_leave_their_waves_alone():
    waves = complex_normal(torch.Generator().manual_seed(1), 2, 3, 2, 5, 4).requires_grad_()
    before = waves.detach().clone()
    weights = torch.arange(40.0, dtype=torch.float64).reshape(2, 5, 4)
    found = intensity_of(waves)
    torch.testing.assert_close(found, waves.abs().square().sum((1, 2)), rtol=1e-13, atol=0)
    (found * weights).sum().backward()
    torch.testing.assert_close(waves.grad, 2 * weights[:, None, None] * before, rtol=1e-13, atol=0)
    assert torch.equal(waves.detach(), before)


@pytest.mark.parametrize("shared", [False, True], ids=["a probe each", "one probe"])
def test_probes_that_do_not_move_are_not_transformed(shared):
    problem = Problem((8, 7), 2, False, "amplitude")
    probes = problem.probe.expand(4, -1, -1, -1) if not shared else problem.probe
    found = []
    for still in (torch.zeros(4, 2, dtype=torch.float64), torch.full((4, 2), 1e-300, dtype=torch.float64)):
        leaf = probes.clone().requires_grad_()
        moved = moved_probes(leaf, still)
        (moved * torch.arange(4.0).reshape(4, 1, 1, 1)).real.sum().backward()
        found.append((moved.detach(), leaf.grad))
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    assert torch.equal(found[0][0], probes.expand(4, -1, -1, -1))
    assert not torch.equal(found[1][0], probes.expand(4, -1, -1, -1))  # transforms leave their rounding


def test_threads_may_be_more_or_fewer_on_the_way_back():
    """What each thread adds up has its place since the way there."""
    problem, before = Problem((8, 7), 2, False, "amplitude"), torch.get_num_threads()
    found = []
    try:
        for there, back in ((1, 1), (1, 3), (3, 1), (2, 4)):
            leaves = {name: part.clone().requires_grad_() for name, part in problem.parts.items()}
            torch.set_num_threads(there)
            values = problem.value(**leaves), moved_probes(leaves["probe"], leaves["shifts"]).abs().sum()
            torch.set_num_threads(back)
            sum(values).backward()
            found.append([leaf.grad for leaf in leaves.values()])
    finally:
        torch.set_num_threads(before)
    for gradients in found[1:]:
        for one, other in zip(found[0], gradients, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-12 * one.abs().max().item())


SHIFTS = torch.tensor([[0.0, 0.0], [0.5, -0.5], [0.3, -0.12], [-1.3, 2.7]], dtype=torch.float64)


def moved(field, shifts):
    return moved_probes(field[None], shifts)[:, 0]


def gaussian(shape, centre):
    y, x = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in shape), indexing="ij")
    return torch.exp(-((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / (2 * 3.0**2)).to(torch.complex128)


def test_a_gaussian_moves_to_where_it_should():
    for shape in ((48, 50), (49, 51)):
        found = moved(gaussian(shape, (24, 24.5)), SHIFTS)
        for pattern, (y, x) in zip(found, SHIFTS.tolist(), strict=True):
            with case(shape, y, x):
                torch.testing.assert_close(pattern, gaussian(shape, (24 + y, 24.5 + x)), rtol=0, atol=1e-12)


def test_a_band_limited_field_is_sampled_elsewhere():
    def field(shape, y0, x0):
        y, x = torch.meshgrid(
            torch.arange(shape[0], dtype=torch.float64) - y0,
            torch.arange(shape[1], dtype=torch.float64) - x0,
            indexing="ij",
        )
        waves = [(1.0, 3, -2), (0.7j, -4, 4), (0.2 - 0.5j, 0, 1), (2.0, 0, 0)]
        return sum(a * torch.exp(2j * torch.pi * (k * y / shape[0] + q * x / shape[1])) for a, k, q in waves)

    for shape in ((12, 10), (11, 9), (12, 9)):
        found = moved(field(shape, 0.0, 0.0), SHIFTS)
        for pattern, (y, x) in zip(found, SHIFTS.tolist(), strict=True):
            with case(shape, y, x):
                torch.testing.assert_close(pattern, field(shape, y, x), rtol=0, atol=1e-12)


def without_nyquist(field):
    spectrum = torch.fft.fft2(field)
    for axis, side in enumerate(field.shape):
        if side % 2 == 0:
            spectrum.select(axis, side // 2).zero_()
    return torch.fft.ifft2(spectrum)


@pytest.mark.parametrize("shape", WINDOWS)
def test_noise_that_is_moved(shape):
    """By whole pixels it is rolled, there and back it is as it was, its power is kept, and what is real stays real."""
    noise = complex_normal(torch.Generator().manual_seed(3), *shape)
    rolled = moved(noise, torch.tensor([[2.0, -3.0]], dtype=torch.float64))[0]
    torch.testing.assert_close(rolled, noise.roll((2, -3), (0, 1)), rtol=0, atol=1e-13)
    assert moved(noise.real.to(torch.complex128), SHIFTS).imag.abs().max() < 1e-14
    field = without_nyquist(noise)
    found = moved(field, SHIFTS)
    torch.testing.assert_close(
        found.abs().square().sum((1, 2)), field.abs().square().sum().expand(4), rtol=1e-13, atol=0
    )
    for there, shift in zip(found, SHIFTS, strict=True):
        torch.testing.assert_close(moved(there, -shift[None])[0], field, rtol=0, atol=1e-13)


def arrays_that_fit():
    generator = torch.Generator().manual_seed(2)
    return {
        "object": complex_normal(generator, 1, 2, 15, 18),
        "window_origins": torch.tensor([[0, 0], [3, 2]]),
        "probes": complex_normal(generator, 2, 1, 8, 7),
        "shifts": torch.zeros(2, 2, dtype=torch.float64),
        "kernel": complex_normal(generator, 8, 7),
        "propagator": complex_normal(generator, 8, 7),
    }


def test_what_does_not_fit_is_refused_before_any_loop():
    wrong = [
        ("object", lambda object: object[0]),
        ("object", lambda object: object.to(torch.complex64)),
        ("object", lambda object: object.real),
        ("window_origins", lambda corners: corners[:1]),
        ("window_origins", lambda corners: corners[:, :1]),
        ("window_origins", lambda corners: corners.double()),
        ("window_origins", lambda corners: corners + 9),
        ("probes", lambda probes: probes[..., :6]),
        ("probes", lambda probes: probes.repeat(2, 1, 1, 1)),
        ("shifts", lambda shifts: shifts[:1]),
        ("kernel", lambda kernel: None),
        ("kernel", lambda kernel: kernel[:, :6]),
        ("kernel", lambda kernel: kernel.expand(3, -1, -1)),
        ("propagator", lambda propagator: propagator[:6]),
        ("propagator", lambda propagator: propagator.to(torch.complex64)),
    ]
    fitting = arrays_that_fit()
    hotpath.patterns(Illumination(**fitting))
    for number, (name, change) in enumerate(wrong):
        with case(number, name), pytest.raises(InvalidValueError) as caught:
            hotpath.patterns(Illumination(**fitting | {name: change(fitting[name])}))
        assert caught.value.code in ("array.shape-mismatch", "scan.position-outside"), number


def test_frames_weights_backgrounds_and_kernels_that_do_not_fit_are_refused():
    given, detection = Illumination(**arrays_that_fit()), Detection(torch.zeros(2, 8, 7), floor=1.0)
    for shape, rows in (((3, 8, 7), None), ((2, 8, 6), None), ((2, 8, 7), [0, 2]), ((2, 8, 7), [-1, 0])):
        rows = None if rows is None else torch.tensor(rows)
        with case(shape, rows), raises("array.shape-mismatch", "stored", shape):
            hotpath.misfit(given, Detection(torch.zeros(shape), rows, floor=1.0))
    hotpath.misfit(given, detection)
    with raises("kernel.unsupported", "without gradient"):
        hotpath.misfit(given._replace(kernel=given.kernel.clone().requires_grad_()), detection)
    for name, value in (
        ("weights", torch.ones(3, dtype=torch.float64)),
        ("weights", torch.ones(2)),
        ("background", torch.ones(8, 6, dtype=torch.float64)),
    ):
        with case(name, value), raises("array.shape-mismatch", name, tuple(value.shape)):
            hotpath.misfit(given, detection._replace(**{name: value}))


@pytest.mark.parametrize(("weighted", "lit", "damping"), all_pairs((True, False), (True, False), (0.7, 0.0)), ids=str)
def test_the_misfit_with_weights_and_a_background_is_that_of_the_composed_model(weighted, lit, damping):
    problem = Problem((8, 7), 2, True, "amplitude")
    generator = torch.Generator().manual_seed(9)
    given = Illumination(problem.object[None, None], problem.corners, problem.probe[None], problem.shifts)
    weights = (torch.rand(4, dtype=torch.float64, generator=generator) + 0.5).requires_grad_() if weighted else None
    background = torch.rand(8, 7, dtype=torch.float64, generator=generator).requires_grad_() if lit else None
    floor = problem.loss.floor
    detection = Detection(problem.counts, None, problem.mask, floor, weights, background, damping)
    one = hotpath.misfit(given, detection)
    patterns = hotpath.patterns(given)
    patterns = patterns * (1 if weights is None else weights[:, None, None]) + (0 if background is None else background)
    two = loss_of(patterns, problem.counts, problem.mask, AmplitudeLoss(floor, damping))
    torch.testing.assert_close(one, two, rtol=1e-12, atol=0.0)
    leaves = [leaf for leaf in (weights, background) if leaf is not None]
    for left, right in (
        zip(torch.autograd.grad(one, leaves), torch.autograd.grad(two, leaves), strict=True) if leaves else ()
    ):
        torch.testing.assert_close(left, right, rtol=1e-11, atol=1e-12 * right.abs().max().item())


def test_arrays_that_lie_otherwise_in_memory_give_the_same():
    """Transposed twice in memory, or with a conjugation that torch has not carried out yet."""
    fitting, found = arrays_that_fit(), {}
    for rearranged in (None, "object", "probes", "kernel"):
        leaves = {key: fitting[key].clone().requires_grad_(key != "kernel") for key in ("object", "probes", "kernel")}
        given = dict(leaves)
        if rearranged:
            leaf = given[rearranged]
            given[rearranged] = leaf.mT.contiguous().mT if rearranged == "object" else leaf.conj_physical().conj()
        patterns = hotpath.patterns(Illumination(**fitting | given))
        (patterns * torch.arange(7.0)).sum().backward()
        found[rearranged] = (patterns.detach(), leaves["object"].grad, leaves["probes"].grad)
    for name, arrays in found.items():
        for one, other in zip(found[None], arrays, strict=True):
            with case(name):
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_memory_kept_for_the_next_update_holds_nothing_of_the_last(implementation):
    """Gradients of one batch stay as they were while another goes the same way."""
    fitting, detection = arrays_that_fit(), Detection(torch.ones(2, 8, 7), floor=0.1)
    names, found = ("object", "probes"), []
    for factor in (1.0, 3.0, 1.0):
        leaves = {name: (factor * fitting[name]).requires_grad_() for name in names}
        given = Illumination(**fitting | leaves)
        result = hotpath.patterns(given) if implementation == "torch" else hotpath.misfit(given, detection)
        result.sum().backward()
        found.append([leaves[name].grad for name in names] + [leaves[name].grad.clone() for name in names])
    for given, copied in ((found[0][:2], found[0][2:]), (found[0][2:], found[2][2:])):
        assert all(torch.equal(one, other) for one, other in zip(given, copied, strict=True))
    assert not torch.equal(found[0][0], found[1][0])


def test_two_threads_at_once_get_what_each_gets_alone():
    problems = [Problem((8, 8), modes, True, "amplitude") for modes in (1, 2)]
    expected = [problem.gradients() for problem in problems]
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            for found, alone in zip(pool.map(Problem.gradients, problems), expected, strict=True):
                assert all(torch.equal(found[name], alone[name]) for name in found)


def test_probes_and_shifts_that_do_not_fit_are_refused():
    for probes, shifts in ((3, (4, 2)), (0, (4, 2)), (1, (4, 1)), (4, (4, 3))):
        with case(probes, shifts), raises("array.shape-mismatch", shifts):
            moved_probes(torch.zeros(probes, 1, 8, 7, dtype=torch.complex128), torch.full(shifts, 0.1))


@compiled_only
@pytest.mark.parametrize("threads", [1, 2])
def test_sides_with_large_prime_factors_have_the_gradients_of_torch(threads, monkeypatch):
    """Of two slices and modes; 43 and 59 are transformed by convolutions, one of which is padded."""
    generator, before, window = torch.Generator().manual_seed(4), torch.get_num_threads(), (43, 59)
    given = Illumination(
        complex_normal(generator, 1, 2, 50, 66),
        torch.tensor([[0, 0], [7, 7], [3, 1]]),
        complex_normal(generator, 1, 2, *window),
        torch.rand(3, 2, dtype=torch.float64, generator=generator) - 0.5,
        complex_normal(generator, *window),
    )
    leaves = [leaf.requires_grad_() for leaf in (given.object, given.probes, given.shifts)]
    torch.set_num_threads(threads)
    try:
        found = hotpath.patterns(given)
        slopes = torch.autograd.grad(found.square().sum(), leaves)
        monkeypatch.setattr(hotpath, "COMPILED", "none")
        expected = hotpath.patterns(given)
        others = torch.autograd.grad(expected.square().sum(), leaves)
    finally:
        torch.set_num_threads(before)
    for one, other in zip((found, *slopes), (expected, *others), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12 * other.abs().max().item())
