"""The steps of an update as operations of torch that are one kernel each on CUDA, in Triton.

    shift_spectra                R_j F[P_m] a                   illuminate         A_jm O_k[c_j], or A_jm O_k[c_j]*
    multiply_spectra_            Ψ H, with H_j = R_j* H         compare_           loss, and Ψ ← (dL/dM) Ψ
    set_object_gradient_         Σ_jm A_jm* g_jm at c_j         set_intensity_     Σ_jm a_j |A_jm|² at c_j
    gather_probe_gradient        Σ_j R_j* Q_jm a                shift_gradient     2 Re Σ_km Q_jm* (dR_j/ds) F[P_m]
    select_places                c_j and s_j of a batch         sum_object_power   Σ_j a_j Π_k |O_k[c_j]|²
    step_rows_                   Adam for a batch's patterns    step_all_          Adam for an array
    sum_curvatures               Σ_m |A_jm|² Re ∂_a O* ∂_b O    compare_steps      products of χ, x and y of LSQML
    fit_steps                    a_j and b_j of LSQML

Symbols are those of `hotpath`; a is a number into which the factors of transforms are combined, since torch's scaled
transforms take one more pass. Between these steps torch's transforms run, without factors. An update of one mode is 25
kernels and 215 bytes per pixel (counted); with torch's operations and automatic differentiation it is 99 and 570.

Sums over patterns run in the order of the patterns, never by atomic additions of floating-point numbers: results are
equal to the bit when an update is repeated. An argument whose operation ends in an underscore is overwritten.

Each operation is defined here with torch's operations, for every device, and in `kernels.gpu` for CUDA;
none has a gradient of its own: `chain` combines them to the gradients of the loss, `exit_wave_corrections` to what
LSQML needs.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ptynb.physics.components.component import selected
from ptynb.physics.patches import add_windows, read_windows
from ptynb.physics.torch_steps import shift_ramps, slopes_of_shifts
from ptynb.physics.triton_dispatch import operation, run_by_triton


@operation()
def shift_spectra(spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    """Return R_j F[P_m] times `factor`, (pattern, mode, y, x).

    spectra: (1 or pattern, mode, y, x). shifts: (pattern, yx) [pixels].
    """
    window = spectra.shape[-2], spectra.shape[-1]
    return spectra * (shift_ramps(shifts, window) * factor)[:, None]


@operation()
def illuminate(waves: Tensor, object: Tensor, origins: Tensor, adjoint: bool) -> Tensor:
    """Return A_jm O[c_j], (pattern, mode, y, x), or A_jm O[c_j]* if `adjoint`.

    waves: A (pattern, mode, y, x). object: (y, x). origins: c (pattern, yx), int64.
    """
    windows = read_windows(object, origins, (waves.shape[-2], waves.shape[-1]))
    return waves * (windows.conj() if adjoint else windows)[:, None]


@operation(mutates_args=("spectra",))
def multiply_spectra_(spectra: Tensor, kernel: Tensor, shifts: Tensor | None, factor: float, adjoint: bool) -> None:
    """Multiply spectra (pattern, mode, y, x) by the propagator H times `factor`, or by its conjugate if `adjoint`.

    kernel: (y, x) or (pattern, y, x). shifts: (pattern, yx) [pixels], by which the detector is shifted against the
    waves: H_j = R_j* H; None: not shifted.
    """
    each = kernel if kernel.ndim == 3 else kernel[None]
    if shifts is not None:
        each = each * shift_ramps(shifts, (spectra.shape[-2], spectra.shape[-1])).conj()
    spectra.mul_((each.conj() if adjoint else each)[:, None] * factor)


@operation(mutates_args=("waves",))
def compare_(
    waves: Tensor,
    stored: Tensor,
    rows: Tensor | None,
    mask: Tensor | None,
    weights: Tensor | None,
    background: Tensor | None,
    scale: float,
    floor: float,
    damping: float,
    loss: str,
    factor: float,
    slopes_wanted: bool,
) -> tuple[Tensor, Tensor]:
    """Compare waves on the detector with counts, and replace them by their gradient.

    With M_j = w_j Σ_m |Ψ_jm|² `scale` + B the loss of a pattern is that of `losses`, and Ψ becomes
    2 w_j (dL/dM_j) Ψ_jm `factor`.

    waves: Ψ (pattern, mode, y, x). stored: counts (…, y, x). rows: (pattern,) int64, those of the patterns in `stored`;
    None: all. mask: (y, x). weights: w (pattern,). background: B (y, x). floor, damping: ε and δ [counts], the latter
    of "amplitude". loss: "amplitude", "poisson" or "intensity".

    Returns
    -------
    losses : Tensor
        Sums of the loss over parts of a pattern, (pattern, part), float64.
    slopes : Tensor
        dL/dM_j (pattern, y, x) and M_j without background and weight, stacked (2, pattern, y, x), if `slopes_wanted`;
        else empty.
    """
    real = torch.view_as_real(waves)
    intensity = real.square().sum((1, 4)).mul_(scale)
    modelled = intensity if weights is None else intensity * weights[:, None, None]
    if background is not None:
        modelled = modelled + background
    counts = (stored if rows is None else selected(stored, rows)).to(modelled.dtype)
    losses, slope = _loss_and_slope(modelled, counts, mask, floor, damping, loss)
    of_waves = slope if weights is None else slope * weights[:, None, None]
    real.mul_((2 * factor * of_waves)[:, None, :, :, None])
    return losses.double(), torch.stack([slope, intensity]) if slopes_wanted else slope.new_empty(0)


def _loss_and_slope(
    modelled: Tensor, counts: Tensor, mask: Tensor | None, floor: float, damping: float, loss: str
) -> tuple[Tensor, Tensor]:
    """Return the loss of each row of the patterns (pattern, y), and its slope (pattern, y, x)."""
    if loss == "amplitude":
        amplitude = (modelled + floor).sqrt_()
        difference = amplitude - (counts + floor).sqrt_()
        if mask is not None:
            difference.mul_(mask)
        losses = torch.linalg.vecdot(difference, difference)
        if damping > 0:
            return losses, difference.mul_(amplitude).div_(amplitude.square().add_(damping))
        return losses, difference.div_(amplitude)
    if loss == "poisson":
        modelled = modelled + floor
        d = (counts + floor).sub_(modelled).div_(modelled)
        terms, slope = torch.special.xlog1py(1 + d, d).sub_(d).mul_(modelled), d.neg_()
    else:
        assert loss == "intensity", loss
        difference = modelled - counts
        terms, slope = difference.square(), difference.mul_(2)
    if mask is not None:
        terms, slope = terms.mul_(mask), slope.mul_(mask)
    return terms.sum(2), slope


@operation(mutates_args=("gradient",))
def set_object_gradient_(gradient: Tensor, waves: Tensor, change: Tensor, origins: Tensor, factor: float) -> None:
    """Set a gradient of the object (y, x) to `factor` Σ_jm A_jm* g_jm, added at c_j; 0 outside the windows.

    waves: A, and change: g, (pattern, mode, y, x). origins: c (pattern, yx), int64.
    """
    add_windows(gradient.zero_(), origins, (waves.conj() * change).sum(1) * factor)


@operation()
def gather_probe_gradient(spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    """Return Σ_j R_j* Q_jm times `factor`, (mode, y, x).

    spectra: Q (pattern, mode, y, x). shifts: (pattern, yx) [pixels].
    """
    ramps = shift_ramps(shifts, (spectra.shape[-2], spectra.shape[-1]))
    return (spectra * ramps.conj()[:, None]).sum(0) * factor


@operation()
def shift_gradient(change: Tensor, spectra: Tensor, shifts: Tensor, factor: float) -> Tensor:
    """Return dL/ds times `factor`, (pattern, yx).

    change: F[G] (pattern, mode, y, x), not unitary, of the gradient G of F⁻¹[R_j S_m]. spectra: S (1 or pattern, mode,
    y, x). shifts: (pattern, yx) [pixels].
    """
    return slopes_of_shifts(change, spectra, shifts) * factor


def places_of(patterns: Tensor, origins: Tensor, shifts: Tensor) -> tuple[Tensor, Tensor]:
    """Return window origins and subpixel shifts, (pattern, yx) each, of these patterns (pattern,), int64."""
    return origins[patterns], shifts[patterns]


# On a CPU `places_of` is called itself: dispatching an operation takes longer than the selection of a batch.
select_places = operation(name="select_places")(places_of)


@operation(mutates_args=("values", "means", "squares", "steps"))
def step_rows_(
    values: Tensor,
    gradient: Tensor,
    means: Tensor,
    squares: Tensor,
    steps: Tensor,
    rows: Tensor,
    rate: Tensor,
    beta: float,
    beta_of_squares: float,
    epsilon: float,
) -> None:
    """Change these rows of `values` (row, …) by a step of Adam, with a count of steps for each row.

    gradient, means, squares: of the shape of `values`. steps: (row,). rows: int64, each at most once. rate: ().
    """
    shape = (-1,) + (1,) * (values.ndim - 1)
    steps[rows] += 1
    number = steps[rows].reshape(shape).to(values.dtype)
    own = gradient[rows]
    means[rows] = mean = beta * means[rows] + (1 - beta) * own
    squares[rows] = square = beta_of_squares * squares[rows] + (1 - beta_of_squares) * own.square()
    unbiased = (square / (1 - beta_of_squares**number)).sqrt() + epsilon
    values[rows] -= rate * mean / (1 - beta**number) / unbiased


@operation(mutates_args=("values", "means", "squares"))
def step_all_(
    values: Tensor,
    gradient: Tensor,
    means: Tensor,
    squares: Tensor,
    step: Tensor,
    rate: Tensor,
    beta: float,
    beta_of_squares: float,
    epsilon: float,
) -> None:
    """Change all `values` by a step of Adam.

    gradient, means, squares: of the shape of `values`. step: number of this step, from 1, and rate: ().
    """
    number = step.to(values.dtype)
    means.mul_(beta).add_(gradient, alpha=1 - beta)
    squares.mul_(beta_of_squares).addcmul_(gradient, gradient, value=1 - beta_of_squares)
    unbiased = (squares / (1 - beta_of_squares**number)).sqrt_().add_(epsilon)
    values -= rate * means / (1 - beta**number) / unbiased


@operation(mutates_args=("sums",))
def set_intensity_(sums: Tensor, waves: Tensor, origins: Tensor, weights: Tensor | None) -> None:
    """Set sums (y, x), of the object's size, to Σ_jm a_j |A_jm|², added at c_j; 0 outside the windows.

    waves: A (pattern, mode, y, x). origins: c (pattern, yx), int64. weights: a (pattern,); None: 1.
    """
    intensity = torch.view_as_real(waves).square().sum((1, 4))
    add_windows(sums.zero_(), origins, intensity if weights is None else intensity * weights[:, None, None])


@operation()
def sum_object_power(object: Tensor, origins: Tensor, weights: Tensor | None, height: int, width: int) -> Tensor:
    """Return Σ_j a_j Π_k |O_k[c_j]|², (height, width).

    object: (slice, y, x). origins: c (pattern, yx), int64. weights: a (pattern,); None: 1.
    """
    power = torch.view_as_real(read_windows(object, origins, (height, width))).square().sum(-1).prod(1)
    return (power if weights is None else power * weights[:, None, None]).sum(0)


@operation()
def compare_steps(
    change: Tensor,
    waves: Tensor,
    steps: Tensor,
    before: Tensor | None,
    object: Tensor,
    object_step: Tensor,
    origins: Tensor,
) -> Tensor:
    """Return real products xx, xy, yy, χx, χy of waves behind a slice, sums over parts of a pattern.

    With x_jm = O[c_j] x'_jm + ΔO[c_j] A_jm and y_jm = O[c_j] y'_jm, the product xy of a pattern is Re Σ_m x_jm* y_jm.

    change: χ, waves: A, and steps: y', (pattern, mode, y, x). before: x', likewise; None: 0. object: O, and
    object_step: ΔO, (y, x). origins: c (pattern, yx), int64.

    Returns (pattern, part, 5), float64.
    """
    window = change.shape[-2], change.shape[-1]
    here = read_windows(object, origins, window)[:, None]
    x, y = read_windows(object_step, origins, window)[:, None] * waves, here * steps
    if before is not None:
        x = x + here * before
    rows = [torch.view_as_real(one.resolve_conj()).flatten(3).flatten(1, 2) for one in (change, x, y)]
    pairs = (1, 1), (1, 2), (2, 2), (0, 1), (0, 2)
    return torch.stack([torch.linalg.vecdot(rows[one], rows[other]) for one, other in pairs], 2).double()


@operation()
def sum_curvatures(field: Tensor, waves: Tensor, origins: Tensor) -> Tensor:
    """Return Σ_m |A_jm|² Re(∂_a O* ∂_b O) for ab = yy, yx, xx, sums over parts of a pattern.

    field: O (y, x); its derivatives are differences to the next pixel, 0 at the end of a window. waves: A (pattern,
    mode, y, x). origins: of the windows (pattern, yx), int64.

    Returns (pattern, part, 3), float64.
    """
    windows = read_windows(field, origins, (waves.shape[-2], waves.shape[-1]))
    y, x = (torch.nn.functional.pad(windows.diff(dim=axis), pad) for axis, pad in ((1, (0, 0, 0, 1)), (2, (0, 1))))
    products = torch.stack([y * y.conj(), y * x.conj(), x * x.conj()], -1).real
    return (products * torch.view_as_real(waves).square().sum((1, 4))[..., None]).sum(2).double()


def best_lengths(products: Tensor) -> Tensor:
    """Return real a, b (pattern, 2) that minimise Σ |χ - a x - b y|² for each pattern; 0 for a change that is 0.

    products: xx, xy, yy, χx, χy (pattern, 5), float64, summed over the parts of `compare_steps`.
    """
    xx, xy, yy, cx, cy = products.unbind(1)
    # A millionth more on the diagonal, so that the solution is unique if the changes are parallel or one is 0.
    more = 1e-6 * (xx + yy) + 1e-100
    xx, yy = xx + more, yy + more
    return torch.stack([yy * cx - xy * cy, xx * cy - xy * cx], 1) / (xx * yy - xy * xy)[:, None]


# On a CPU `best_lengths` is called itself, as `places_of`.
fit_steps = operation(name="fit_steps")(best_lengths)


run_by_triton(
    shift_spectra,
    illuminate,
    multiply_spectra_,
    compare_,
    set_object_gradient_,
    gather_probe_gradient,
    shift_gradient,
    select_places,
    step_rows_,
    step_all_,
    set_intensity_,
    sum_object_power,
    compare_steps,
    sum_curvatures,
    fit_steps,
)
