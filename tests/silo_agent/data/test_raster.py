import numpy as np
import pytest

from silo_agent.data.errors import Unfit
from silo_agent.data.raster import MAX_PIXELS, Raster, check_size, unreadable


def test_gray_of_three_channels_is_gray_thrice_and_colour_of_one_is_its_luminance():
    gray = np.array([[0, 40_000]], np.uint16)
    assert Raster.gray(gray, 3).values.tolist() == [gray.tolist()] * 3
    rgb = np.array([[[255, 0, 0], [0, 255, 0], [7, 7, 7]]], np.uint8)
    assert Raster.colour(rgb, 1).values.tolist() == [[[76, 150, 7]]]
    assert Raster.colour(rgb, 3).values.tolist() == [[[255, 0, 7]], [[0, 255, 7]], [[0, 0, 7]]]


@pytest.mark.parametrize("size", [(0, 5), (5, 0), (-2, -2), (MAX_PIXELS + 1, 1), (1 << 40, 1 << 40)])
def test_an_image_of_no_pixel_or_too_many_is_refused(size):
    check_size(MAX_PIXELS, 1)
    with pytest.raises(Unfit) as caught:
        check_size(*size)
    assert f"{size[0]} x {size[1]}" in caught.value.found


def test_a_decoders_words_are_not_passed_on():
    unfit = unreadable("an image", ValueError("name of a patient"))
    assert "ValueError" in unfit.found
    assert "name" not in unfit.found + unfit.expected + repr(unfit) + str(unfit)
