import dataclasses
import io

from matplotlib.text import Text
from PIL import Image

from ptynb.report.scaling_figure import scaling_figure
from tests.data.test_scaling_result import TEST, trial


def texts(page):
    return [text.get_text() for text in page.findobj(Text) if text.get_text()]


def test_it_shows_seconds_speed_up_and_every_trials_loss_against_time():
    page = scaling_figure(TEST)
    seconds, speed_up, loss = page.axes
    assert [tuple(point) for point in seconds.lines[0].get_xydata()] == [(1, 3), (2, 1.5), (4, 1)]
    assert [tuple(point) for point in speed_up.lines[0].get_xydata()] == [(1, 1), (2, 2), (4, 3)]
    curves = [[tuple(point) for point in line.get_xydata()] for line in loss.lines]
    assert curves == [[*one.curve] for one in TEST.trials]
    assert {"<made up>   ·   100 patterns   ·   CPU", "150%", "2 engines, 2 threads"} <= set(texts(page))
    assert Image.open(io.BytesIO(page._repr_png_())).size[0] > 600


def test_each_number_of_threads_has_a_line():
    scan = "odd $name_ | b"
    trials = tuple(trial(engines, threads, 1, 9, 4 / engines) for engines in (1, 2) for threads in (1, 2))
    page = scaling_figure(dataclasses.replace(TEST, scan=scan, trials=trials))
    assert {"1 thread per engine", "2 threads per engine", f"{scan}   ·   100 patterns   ·   CPU"} <= set(texts(page))
    page.savefig(io.BytesIO(), format="png")
