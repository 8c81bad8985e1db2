import numpy as np
import pytest
import torch

from ptynb.physics.farfield import far_field_loss, intensities, moved_probes, shift_ramps
from ptynb.physics.losses import make_loss

WINDOWS = [(8, 8), (9, 7), (6, 10), (7, 12)]
LOSSES = ["amplitude", "poisson", "intensity"]
MEAN_COUNT = 3.0


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
        self.ramps = shift_ramps(self.shifts, window)
        self.counts = torch.poisson(torch.full((4, *window), MEAN_COUNT, dtype=torch.float64), generator=generator)
        self.mask = (torch.rand(window, generator=generator) > 0.25).double() if masked else None
        self.name = name
        self.loss = make_loss(name, MEAN_COUNT)
        self.prepared = self.loss.prepare(self.counts.clone())

    def value(self, object, probe):
        return far_field_loss(object, probe, self.corners, self.ramps, self.prepared, self.mask, self.loss)

    def gradients(self, factor=1.0):
        object, probe = self.object.clone().requires_grad_(), self.probe.clone().requires_grad_()
        (factor * self.value(object, probe)).backward()
        return object.grad, probe.grad


problems = pytest.mark.parametrize(
    "problem",
    [
        pytest.param((window, modes, masked, name), id=f"{name}-{window[0]}x{window[1]}-{modes}-{'mask' * masked}")
        for name in LOSSES
        for window in WINDOWS
        for modes in (1, 3)
        for masked in (False, True)
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


@pytest.mark.parametrize("window", WINDOWS)
def test_modelled_patterns_are_those_of_a_transform_written_out(window):
    problem = Problem(window, 3, False, "amplitude")
    found = intensities(problem.object, problem.probe, problem.corners, problem.ramps)
    np.testing.assert_allclose(found.numpy(), intensities_by_hand(problem), rtol=1e-10, atol=1e-12)


@problems
def test_the_value_is_that_of_plain_numpy(problem):
    expected = loss_by_hand(
        problem.name, intensities_by_hand(problem), problem.counts.numpy(), problem.loss.floor, problem.mask
    )
    assert problem.value(problem.object, problem.probe).item() == pytest.approx(expected, rel=1e-12)


def central_difference(function, step):
    """The derivative at 0 to fourth order in the step."""
    return (8 * (function(step) - function(-step)) - (function(2 * step) - function(-2 * step))) / (12 * step)


@problems
@pytest.mark.parametrize("part", ["object", "probe"])
def test_the_gradient_is_that_of_finite_differences(problem, part):
    generator = torch.Generator().manual_seed(11)
    gradient = dict(zip(("object", "probe"), problem.gradients(), strict=True))[part]
    arrays = {"object": problem.object, "probe": problem.probe}
    for _ in range(4):
        direction = complex_normal(generator, *arrays[part].shape)

        def along(step, direction=direction):
            return problem.value(**{**arrays, part: arrays[part] + step * direction}).item()

        slope = torch.vdot(gradient.flatten(), direction.flatten()).real.item()
        # Measured over all these problems: at most 7e-10.
        assert central_difference(along, 1e-4) == pytest.approx(slope, rel=1e-8)


def differentiable_loss(problem, object, probe):
    """The same model by operations that torch records: no slope of ours is behind its gradient."""
    height, width = probe.shape[-2:]
    patches = torch.stack([object[y : y + height, x : x + width] for y, x in problem.corners.tolist()])
    moved = torch.fft.ifft2(torch.fft.fft2(probe) * problem.ramps[:, None])
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
def test_the_gradient_is_that_of_automatic_differentiation(problem):
    object, probe = problem.object.clone().requires_grad_(), problem.probe.clone().requires_grad_()
    value = differentiable_loss(problem, object, probe)
    expected = torch.autograd.grad(value, (object, probe))
    assert problem.value(problem.object, problem.probe).item() == pytest.approx(value.item(), rel=1e-12)
    for found, wanted in zip(problem.gradients(), expected, strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-10 * wanted.abs().max().item())


@problems
def test_either_gradient_alone_is_the_same(problem):
    both = problem.gradients()
    object = problem.object.clone().requires_grad_()
    problem.value(object, problem.probe).backward()
    assert torch.equal(object.grad, both[0])
    probe = problem.probe.clone().requires_grad_()
    problem.value(problem.object, probe).backward()
    assert torch.equal(probe.grad, both[1])


def test_an_outer_factor_scales_both_gradients():
    problem = Problem((8, 8), 2, True, "poisson")
    for once, thrice in zip(problem.gradients(), problem.gradients(factor=-3.0), strict=True):
        torch.testing.assert_close(thrice, -3.0 * once, rtol=1e-14, atol=0)


def test_nothing_given_is_overwritten():
    problem = Problem((8, 7), 2, True, "poisson")
    names = ("object", "probe", "corners", "ramps", "prepared", "mask")
    before = {name: getattr(problem, name).clone() for name in names}
    object, probe = problem.object.requires_grad_(), problem.probe.requires_grad_()
    problem.value(object, probe).backward()
    for name in names:
        assert torch.equal(getattr(problem, name), before[name]), name


def test_losses_add_over_the_batch():
    problem = Problem((8, 7), 2, True, "amplitude")
    parts = [
        far_field_loss(
            problem.object,
            problem.probe,
            problem.corners[some],
            problem.ramps[some],
            problem.prepared[some],
            problem.mask,
            problem.loss,
        )
        for some in (slice(0, 1), slice(1, 4))
    ]
    assert sum(parts).item() == pytest.approx(problem.value(problem.object, problem.probe).item(), rel=1e-13)


@pytest.mark.parametrize("name", LOSSES)
def test_an_empty_batch_is_zero_with_zero_gradients(name):
    problem = Problem((8, 8), 2, False, name)
    problem.corners, problem.prepared = problem.corners[:0], problem.prepared[:0]
    problem.ramps = shift_ramps(problem.shifts[:0], (8, 8))
    assert problem.ramps.shape == (0, 8, 8)
    assert problem.value(problem.object, problem.probe).item() == 0
    for gradient, array in zip(problem.gradients(), (problem.object, problem.probe), strict=True):
        assert torch.equal(gradient, torch.zeros_like(array))


SHIFTS = torch.tensor([[0.0, 0.0], [0.5, -0.5], [0.3, -0.12], [-1.3, 2.7]], dtype=torch.float64)


def moved(field, shifts):
    return moved_probes(field[None], shift_ramps(shifts, tuple(field.shape)))[:, 0]


def gaussian(shape, centre):
    y, x = torch.meshgrid(*(torch.arange(side, dtype=torch.float64) for side in shape), indexing="ij")
    return torch.exp(-((y - centre[0]) ** 2 + (x - centre[1]) ** 2) / (2 * 3.0**2)).to(torch.complex128)


@pytest.mark.parametrize("shape", [(48, 50), (49, 51)])
def test_a_gaussian_moves_to_where_it_should(shape):
    found = moved(gaussian(shape, (24, 24.5)), SHIFTS)
    for pattern, (y, x) in zip(found, SHIFTS.tolist(), strict=True):
        torch.testing.assert_close(pattern, gaussian(shape, (24 + y, 24.5 + x)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("shape", [(12, 10), (11, 9), (12, 9)])
def test_a_band_limited_field_is_sampled_elsewhere(shape):
    def field(y0, x0):
        y, x = torch.meshgrid(
            torch.arange(shape[0], dtype=torch.float64) - y0,
            torch.arange(shape[1], dtype=torch.float64) - x0,
            indexing="ij",
        )
        waves = [(1.0, 3, -2), (0.7j, -4, 4), (0.2 - 0.5j, 0, 1), (2.0, 0, 0)]
        return sum(a * torch.exp(2j * torch.pi * (k * y / shape[0] + q * x / shape[1])) for a, k, q in waves)

    found = moved(field(0.0, 0.0), SHIFTS)
    for pattern, (y, x) in zip(found, SHIFTS.tolist(), strict=True):
        torch.testing.assert_close(pattern, field(y, x), rtol=0, atol=1e-12)


def white_noise(shape):
    return complex_normal(torch.Generator().manual_seed(3), *shape)


@pytest.mark.parametrize("shape", WINDOWS)
def test_a_whole_shift_is_a_roll(shape):
    field = white_noise(shape)
    found = moved(field, torch.tensor([[2.0, -3.0]], dtype=torch.float64))[0]
    torch.testing.assert_close(found, field.roll((2, -3), (0, 1)), rtol=0, atol=1e-13)


def without_nyquist(field):
    spectrum = torch.fft.fft2(field)
    for axis, side in enumerate(field.shape):
        if side % 2 == 0:
            spectrum.select(axis, side // 2).zero_()
    return torch.fft.ifft2(spectrum)


@pytest.mark.parametrize("shape", WINDOWS)
def test_there_and_back_is_the_same_field(shape):
    field = without_nyquist(white_noise(shape))
    for there, shift in zip(moved(field, SHIFTS), SHIFTS, strict=True):
        torch.testing.assert_close(moved(there, -shift[None])[0], field, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", WINDOWS)
def test_moving_keeps_the_power(shape):
    field = without_nyquist(white_noise(shape))
    power = moved(field, SHIFTS).abs().square().sum((1, 2))
    torch.testing.assert_close(power, field.abs().square().sum().expand(4), rtol=1e-13, atol=0)


@pytest.mark.parametrize("shape", WINDOWS)
def test_a_real_field_stays_real(shape):
    field = white_noise(shape).real.to(torch.complex128)
    assert moved(field, SHIFTS).imag.abs().max() < 1e-14
