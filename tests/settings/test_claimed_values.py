import math

import pytest

from ptynb.data.electrons import electron_voltage, electron_wavelength
from ptynb.data.geometry import wavelength_from_energy
from ptynb.settings.claimed_values import CLAIMS, beam_of, energy_of, impossible, improbable, is_set
from tests.parametrization import each

ARINA, EIGER = "Dectris ARINA Si", "Dectris EIGER2 CdTe 1M-W"
BEAMS = {  # what is stated, and the wavelength
    "voltage as energy": ({"energy": 300e3, "detector": ARINA}, electron_wavelength(300e3)),
    "30 kV at a detector of electrons": ({"energy": 30e3, "detector": "QUADRO"}, electron_wavelength(30e3)),
    "wavelength by the wrong formula": (
        {"energy": 300e3, "wavelength": wavelength_from_energy(300e3), "detector": ARINA},
        electron_wavelength(300e3),
    ),
    "only that wavelength": ({"wavelength": wavelength_from_energy(200e3)}, electron_wavelength(200e3)),
    "only that wavelength, of 60 kV": (
        {"wavelength": wavelength_from_energy(60e3), "detector": "Dectris ELA"}, electron_wavelength(60e3)
    ),
    "the right wavelength": ({"wavelength": electron_wavelength(300e3)}, electron_wavelength(300e3)),
    "and the energy": (
        {"wavelength": electron_wavelength(80e3), "energy": 80e3, "detector": ARINA}, electron_wavelength(80e3)
    ),
    "no detector named": ({"energy": 300e3}, electron_wavelength(300e3)),
    "the microscope's voltage": ({"energy": 8041.0, "voltage": 60e3, "detector": ARINA}, electron_wavelength(60e3)),
    "X-rays": ({"energy": 8e3}, wavelength_from_energy(8e3)),
    "hard X-rays at a detector of X-rays": ({"energy": 80e3, "detector": EIGER}, wavelength_from_energy(80e3)),
    "X-rays, both stated": ({"energy": 8e3, "wavelength": 1.54e-10}, 1.54e-10),
}  # fmt: skip
QUESTIONS = {  # what is stated, and what the question and the answers have to name
    "the default of a detector": ({"energy": 8041.0, "detector": ARINA}, ["8041 eV", ARINA, "voltage="]),
    "that as a wavelength": ({"wavelength": 1.5419e-10, "detector": ARINA}, ["8041", ARINA, "voltage="]),
    "80 keV": ({"energy": 80e3}, ["80000 eV", "voltage=80000 [V]", "energy=80000 [eV]"]),
    "a storage ring": ({"energy": 6e9}, ["6e+09 eV", "energy=", "voltage="]),
}


@each("case", list(BEAMS))
def test_the_beam_is_what_is_possible(case):
    stated, wavelength = BEAMS[case]
    beam = beam_of(**stated)
    assert beam.wavelength == pytest.approx(wavelength, rel=1e-6)
    assert not beam.question


@each("case", list(QUESTIONS))
def test_a_beam_that_is_not_decided_is_asked_for(case):
    stated, facts = QUESTIONS[case]
    beam = beam_of(**stated)
    assert beam.wavelength is None
    assert all(fact in beam.question + beam.give for fact in facts)


@each("wavelength", [1e-10, electron_wavelength(60e3), electron_wavelength(300e3)])
def test_the_energy_of_a_wavelength_gives_it_back(wavelength):
    assert beam_of(energy=energy_of(wavelength), detector=ARINA if wavelength < 1e-11 else "").wavelength == (
        pytest.approx(wavelength, rel=1e-9)
    )
    assert electron_wavelength(electron_voltage(wavelength)) == pytest.approx(wavelength, rel=1e-9)


def test_what_is_written_where_nothing_is_set():
    assert not any(map(is_set, (0.0, -1.0, 65535.0, 2.0**32 - 1, math.nan)))
    assert all(map(is_set, (1e-10, 2.0, math.inf, -2.0)))


@each("name", list(CLAIMS))
def test_each_number_is_usual_improbable_or_impossible(name):
    claim = CLAIMS[name]
    for low, high in claim.usual:
        for value in (low, high):
            assert impossible(name, value) is None
            assert improbable(name, value) is None
    low, high = claim.possible
    remark = improbable(name, low, "entry/x")
    assert remark is not None
    assert "entry/x" in remark
    assert claim.give in remark
    for value in (low / 2, high * 2, math.inf):
        problem = impossible(name, value, "entry/x")
        assert problem is not None
        assert all(fact in str(problem) for fact in (f"{value:.6g} {claim.unit}", "entry/x", claim.give))
        assert improbable(name, value) is None
