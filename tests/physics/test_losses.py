import numpy as np
import pytest
import scipy.special
import scipy.stats
import torch

import ptynb as pt
from ptynb.distributed.group import SingleGroup
from ptynb.engine.loop import Loop
from ptynb.physics.losses import (
    POISSON_BELOW,
    POISSON_BELOW_FOR_ELECTRONS,
    SLOPE_DAMPING,
    AmplitudeLoss,
    Sums,
    WeightedSum,
    amplitude_residuals,
    make_loss,
)
from tests.parametrization import each

LOSSES = ["amplitude", "poisson", "intensity"]
SHAPE = (3, 6, 5)
MEAN = 2.0
SUMS = Sums(12.0, lambda: 80.0)


@pytest.fixture(params=LOSSES)
def name(request):
    return request.param


def random(seed):
    return torch.Generator().manual_seed(seed)


def some_counts():
    return torch.poisson(torch.full(SHAPE, MEAN, dtype=torch.float64), generator=random(0))


def some_model():
    return MEAN * torch.rand(SHAPE, dtype=torch.float64, generator=random(1)) + 0.01


def some_mask():
    return (torch.rand(SHAPE[1:], generator=random(2)) > 0.3).double()


def evaluate(loss, model, mask=None, counts=None):
    return loss.value_and_slope(model.clone(), some_counts() if counts is None else counts, mask)


@pytest.mark.parametrize(
    ("mean", "wavelength", "unit", "optimiser", "chosen"),
    [
        (0.9 * POISSON_BELOW, None, 1, "adam", "poisson"),
        (1.1 * POISSON_BELOW, None, 1, "adam", "amplitude"),
        (1.1 * POISSON_BELOW, 1e-10, 1, "adam", "amplitude"),
        (1.1 * POISSON_BELOW, 4e-12, 1, "adam", "poisson"),  # electrons
        (1.1 * POISSON_BELOW_FOR_ELECTRONS, 4e-12, 1, "adam", "amplitude"),
        (0.9 * POISSON_BELOW, None, 0.7, "adam", "amplitude"),  # no counts
        (0.9 * POISSON_BELOW, None, 1, "lsqml", "amplitude"),
    ],
)
def test_few_counts_are_compared_by_their_likelihood_unless_a_loss_is_chosen(mean, wavelength, unit, optimiser, chosen):
    patterns = unit * np.random.default_rng(0).poisson(mean / unit, (9, 16, 16))
    y, x = np.mgrid[-8:8, -8:8]
    geometry = wavelength and pt.Geometry(wavelength=wavelength, distance=1, detector_pixel=(1e-4, 1e-4))
    positions, probe = np.mgrid[:3, :3].reshape(2, 9).T, np.exp(-(y**2 + x**2) / 8) + 0j
    scan = pt.Scan.from_arrays(patterns, positions, probe=probe, units="pixels", geometry=geometry)
    for name, expected in (("auto", chosen), ("amplitude", "amplitude")):
        loop = Loop(scan, pt.Settings(loss=name, optimiser=optimiser), SingleGroup(torch.device("cpu")))
        assert loop.model.loss.name == expected
        loop.disconnect()


def test_single_precision_resolves_a_nearly_perfect_fit(name):
    loss = make_loss(name, 1e4)
    counts = torch.full((1, 4, 4), 1e4)
    model = counts * 1.001
    single, slope = loss.value_and_slope(model.clone(), counts, None)
    double, _ = loss.value_and_slope(model.double(), counts.double(), None)
    assert (single.dtype, slope.dtype) == (torch.float64, torch.float32)
    assert single.item() == pytest.approx(double.item(), rel=1e-3)


@each("side", [32, 34])
def test_a_damped_slope_is_as_before_where_there_is_light_and_0_where_there_is_none(side):
    model = torch.logspace(-12, 2, side * side, dtype=torch.float64).reshape(1, side, side)
    counts = torch.full((1, side, side), 3.0)
    plain, damped = (make_loss("amplitude", MEAN, damped=one) for one in (False, True))
    assert isinstance(damped, AmplitudeLoss)
    assert damped.damping == SLOPE_DAMPING * MEAN > 0
    (value, slope), (same, less) = (one.value_and_slope(model.clone(), counts, None) for one in (plain, damped))
    assert same.item() == pytest.approx(value.item(), rel=1e-13)  # sums in another order, where memory lies otherwise
    light = model + damped.floor
    torch.testing.assert_close(less, slope * light / (light + damped.damping), rtol=1e-12, atol=0)
    assert (less / slope).min() < 1e-2
    assert (less / slope).max() > 0.999
    assert (make_loss("poisson", MEAN, damped=True).floor, make_loss("amplitude", MEAN).damping) == (plain.floor, 0)


@each("side", [128, 134])
def test_losses_of_many_pixels_are_summed_in_double(name, side):
    """A line search looks at differences of losses that are a millionth of them."""
    model = MEAN * torch.rand((16, side, side), generator=random(3))
    counts = torch.poisson(torch.full((16, side, side), MEAN), generator=random(4))
    single = make_loss(name, MEAN).value_and_slope(model.clone(), counts, None)[0]
    double = make_loss(name, MEAN).value_and_slope(model.double(), counts.double(), None)[0]
    assert single.dtype == torch.float64
    assert single.item() == pytest.approx(double.item(), rel=1e-7)


@each("masked", [False, True])
def test_the_slope_is_that_of_finite_differences(name, masked):
    loss, model, mask = make_loss(name, MEAN), some_model(), some_mask() if masked else None
    slope = evaluate(loss, model, mask)[1]
    step = 1e-3
    for pixel in np.ndindex(*SHAPE):

        def value(change, pixel=pixel):
            moved = model.clone()
            moved[pixel] += change * moved[pixel]
            return evaluate(loss, moved, mask)[0].item()

        ends = 8 * (value(step) - value(-step)) - (value(2 * step) - value(-2 * step))
        found = ends / (12 * step * model[pixel].item())
        assert found == pytest.approx(slope[pixel].item(), rel=1e-6, abs=1e-8)


def test_values_are_those_of_the_formula(name):
    counts, model = some_counts().numpy(), some_model().numpy()
    loss = make_loss(name, MEAN)
    expected = {
        "amplitude": lambda: ((np.sqrt(model + loss.floor) - np.sqrt(counts + loss.floor)) ** 2).sum(),
        "poisson": lambda: scipy.special.kl_div(counts + loss.floor, model + loss.floor).sum(),
        "intensity": lambda: ((model - counts) ** 2).sum(),
    }[name]()
    assert evaluate(loss, some_model())[0].item() == pytest.approx(expected, rel=1e-13)


def test_the_poisson_loss_is_a_difference_of_log_likelihoods():
    def likelihood(rate):
        return scipy.stats.poisson.logpmf(some_counts().numpy(), rate).sum()

    counts = some_counts().numpy()
    best = scipy.stats.poisson.logpmf(counts, np.maximum(counts, 1e-300)).sum()
    value = evaluate(make_loss("poisson", 1e-9), some_model())[0].item()
    assert value == pytest.approx(best - likelihood(some_model().numpy()), rel=1e-10)


def test_masked_pixels_contribute_nothing(name):
    loss, mask = make_loss(name, MEAN), some_mask()
    value, slope = evaluate(loss, some_model(), mask)
    wild = torch.where(mask == 0, 1e6 * some_model(), some_model())
    assert torch.equal(evaluate(loss, wild, mask)[0], value)
    assert (slope[:, mask == 0] == 0).all()
    assert (slope[:, mask == 1] != 0).all()


def test_a_dark_model_and_dark_counts_stay_finite(name):
    loss = make_loss(name, MEAN)
    for model, counts in [(torch.zeros(SHAPE), some_counts().float()), (some_model().float(), torch.zeros(SHAPE))]:
        value, slope = evaluate(loss, model, counts=counts)
        assert value.isfinite()
        assert slope.isfinite().all()


def test_a_bright_model_where_nothing_was_counted(name):
    # The ratio of counts to model is below what single precision resolves beside 1.
    model = torch.full((1, 2, 2), 1e6)
    value, slope = evaluate(make_loss(name, MEAN), model, counts=torch.zeros(1, 2, 2))
    expected = {"amplitude": (4e6, 1.0), "poisson": (4e6, 1.0), "intensity": (4e12, 2e6)}[name]
    assert value.item() == pytest.approx(expected[0], rel=1e-5)
    torch.testing.assert_close(slope, torch.full((1, 2, 2), expected[1]), rtol=1e-5, atol=0)


def weighted(name):
    return WeightedSum([make_loss(name, MEAN), make_loss("poisson", MEAN)], [1.0, 0.5], SUMS)


@each("make", [lambda name: make_loss(name, MEAN), weighted])
def test_the_counts_are_left(name, make):
    counts = some_counts()
    make(name).value_and_slope(some_model(), counts, some_mask())
    assert torch.equal(counts, some_counts())


def test_the_normaliser_sums_counts_or_their_squares(name):
    assert make_loss(name, MEAN).normaliser(SUMS) == {"amplitude": 12.0, "poisson": 12.0, "intensity": 80.0}[name]


def test_a_weighted_sum_has_the_unit_of_its_first_loss():
    losses = [make_loss(name, MEAN) for name in LOSSES]
    both = WeightedSum(losses, [1.0, 0.5, 3.0], SUMS)
    assert both.normaliser(SUMS) == 12.0
    value, slope = evaluate(both, some_model(), some_mask())
    alone = [evaluate(loss, some_model(), some_mask()) for loss in losses]
    factors = (1.0, 0.5, 3.0 * 12.0 / 80.0)
    for found, index in ((value, 0), (slope, 1)):
        expected = sum(factor * each[index] for factor, each in zip(factors, alone, strict=True))
        torch.testing.assert_close(found, expected, rtol=1e-14, atol=1e-14)


def test_amplitude_residuals_are_sums_of_differences_of_roots_of_each_pattern():
    model = torch.tensor([[[4.0, 9.0], [0.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]])
    counts = torch.tensor([[[1.0, 16.0], [25.0, 1.0]], [[1.0, 1.0], [9.0, 4.0]]])
    residuals, totals = amplitude_residuals(model, counts, None)
    assert (residuals.tolist(), totals.tolist()) == ([1 + 1 + 5 + 0, 2 + 1], [1 + 4 + 5 + 1, 1 + 1 + 3 + 2])
    assert residuals.dtype == totals.dtype == torch.float64
    residuals, totals = amplitude_residuals(model, counts, torch.tensor([[1.0, 1.0], [0.0, 1.0]]))
    assert (residuals.tolist(), totals.tolist()) == ([2, 1], [6, 4])
    assert model[0].tolist() == [[4, 9], [0, 1]]
    assert counts[0].tolist() == [[1, 16], [25, 1]]
