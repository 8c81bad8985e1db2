import math

import pytest

from ptynb.io.reading.microscope_scales import angular_pixel, reciprocal, volts
from tests.io.cases import of_case
from tests.raising import raises

RECIPROCALS = {
    "1/nm": 1e9, "nm^-1": 1e9, "1 / nm": 1e9, "nm⁻¹": 1e9, "nm**-1": 1e9, "1/(nm)": 1e9, "A^-1": 1e10, "1/Å": 1e10,
    "1/m": 1.0, "1/µm": 1e6, "nm": None, "mrad": None, "": None, "1/": None, "1/second": None,
}  # fmt: skip


def test_reciprocal_lengths():
    for unit in RECIPROCALS:
        with of_case(unit):
            assert reciprocal(unit) == (None if RECIPROCALS[unit] is None else pytest.approx(RECIPROCALS[unit]))


def test_a_pixel_in_an_angle_or_in_a_reciprocal_length_times_the_wavelength():
    assert angular_pixel(0.5, "mrad", None) == pytest.approx(5e-4)
    assert angular_pixel(0.02, "1/Å", 2e-12) == pytest.approx(4e-4)
    assert angular_pixel(0.02, "1/Å", None) is None
    assert angular_pixel(0.02, "px", 2e-12) is None


def test_voltages_are_in_volts_or_kilovolts():
    for said, meant in [(300, 300e3), (80.0, 80e3), (1000, 1e6), (3001.0, 3001.0), (200e3, 200e3)]:
        with of_case((said, meant)):
            assert volts(said, "scan.xml") == meant


def test_voltages_that_cannot_be_are_refused():
    for said, shown in [(-300.0, -3e5), (2.9, 2900), (3.1e6, 3.1e6), (float("inf"), math.inf)]:
        with of_case(said), raises("scan.implausible-metadata", "scan.xml", f"{shown:.6g} V", "3 to 3000 kV"):
            volts(said, "scan.xml")


def test_voltages_that_are_not_set_are_missing():
    assert volts(0.0, "scan.xml") is None
    assert volts(math.nan, "scan.xml") is None
