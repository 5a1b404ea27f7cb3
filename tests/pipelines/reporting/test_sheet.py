"""Sheets of images with bars, checked by pixels."""
import functools
import os

import numpy as np
import pytest
import tensorflow as tf

from pipelines.reporting import contact_sheet

BAR, RIGHT = (tuple(bytes.fromhex(colour[1:])) for colour in (contact_sheet._BAR, contact_sheet._RIGHT))


def picture(colour=(0, 160, 0), height=40, width=60):
    return tf.io.encode_png(tf.constant(np.full([height, width, 3], colour, np.uint8))).numpy()


def shown(answers=('cat', 'dog'), probabilities=(0.8, 0.1), truth='', image=None, **kwargs):
    return contact_sheet.Shown(picture() if image is None else image, 'a.png', answers, probabilities, truth, **kwargs)


def drawn(tmp_path, *pictures, descriptions={}):  # noqa: B006 (only read)
    path = str(tmp_path / 'page.png')
    contact_sheet.draw(path, pictures, descriptions)
    return tf.io.decode_png(tf.io.read_file(path), 3).numpy()


def area(page, colour):
    return int((page == np.array(colour)).all(-1).sum())


def length(page, colour):
    """Of the longest line of a colour, in pixels, with what is written over it."""
    columns = np.nonzero((page == np.array(colour)).all(-1).any(0))[0]
    return columns.max() - columns.min() + 1


def test_a_bar_is_as_long_as_its_answer_is_probable(tmp_path):
    long, short = (drawn(tmp_path, shown(['cat'], [p])) for p in (0.8, 0.2))
    assert length(long, BAR) / length(short, BAR) == pytest.approx(4, rel=0.03)
    assert length(drawn(tmp_path, shown(['cat'], [1.0])), BAR) < contact_sheet._WIDTH * contact_sheet._DPI


def test_the_right_answer_is_marked_where_it_is_known_and_among_the_five(tmp_path):
    assert area(drawn(tmp_path, shown()), RIGHT) == 0
    assert area(drawn(tmp_path, shown(truth='horse')), RIGHT) == 0
    first, second = (drawn(tmp_path, shown(truth=truth)) for truth in ('cat', 'dog'))
    assert length(first, RIGHT) / length(second, RIGHT) == pytest.approx(8, rel=0.1)
    assert length(second, BAR) == pytest.approx(length(first, RIGHT), abs=2)


def test_classes_are_told_apart_by_name_and_shown_by_their_first_description(tmp_path):
    """ImageNet has two classes called crane."""
    words = {'n1': 'crane, a bird', 'n2': 'crane, a machine'}
    page = drawn(tmp_path, shown(['n1', 'n2'], [0.8, 0.1], 'n1'), descriptions=words)
    np.testing.assert_array_equal(page, drawn(tmp_path, shown(['crane', 'n2'], [0.8, 0.1], 'crane'),
                                              descriptions={'n2': 'crane'}))
    assert area(page, RIGHT) > 4 * area(page, BAR) > 0


@pytest.mark.parametrize('height, width', [(32, 32), (600, 900), (900, 300)])
def test_the_picture_is_whole_and_keeps_its_shape(tmp_path, height, width):
    page = drawn(tmp_path, shown(image=picture(height=height, width=width)))
    ys, xs = np.nonzero((np.abs(page.astype(int) - [0, 160, 0]) < 3).all(-1))
    found = (ys.max() - ys.min() + 1) / (xs.max() - xs.min() + 1)
    assert found == pytest.approx(height / width, rel=0.03) and len(ys) > 10_000


def test_the_first_box_and_that_of_the_right_answer_are_drawn_where_they_are(tmp_path):
    first, right, neither = (.1, .2, .5, .6), (.6, .3, .9, .8), (.02, .02, .98, .98)
    ys, xs = np.nonzero((drawn(tmp_path, shown()) == [0, 160, 0]).all(-1))
    picture_of = np.s_[ys.min():ys.max() + 1, xs.min():xs.max() + 1]
    page = drawn(tmp_path, shown(['cat', 'cow', 'dog'], [.8, .1, .05], 'dog', boxes=[first, neither, right]))
    page = page[picture_of]
    for colour, box in ((BAR, first), (RIGHT, right)):
        rows, columns = np.nonzero((page == np.array(colour)).all(-1))
        ends = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
        np.testing.assert_allclose(ends / np.tile(page.shape[1::-1], 2), box, atol=0.015)


def test_what_cannot_be_shown_as_it_is_still_makes_a_page(tmp_path):
    page = drawn(tmp_path, shown([], [], image=b'text', error='not a picture: ' + 'long ' * 60),
                 shown(image=picture(height=2, width=3000)),
                 shown(['$a_1^2$ and ' * 9, '금붕어'], [0.5, 1e-9], '금붕어'), shown(['a'], [1.0], image=b''))
    assert area(page, BAR) > 1000


def test_many_pictures_go_to_several_pages_and_the_rest_is_counted(tmp_path):
    sheets = contact_sheet.Sheets(str(tmp_path), functools.partial(contact_sheet.draw, descriptions={}), 12, pages=2)
    for _ in range(13):
        sheets.add(shown())
    assert [os.path.basename(path) for path in sheets.paths] == ['sheet_01.png'] and not sheets.left_out
    sheets.close()
    for _ in range(4):
        sheets.add(shown())
    sheets.close()
    assert sorted(os.listdir(tmp_path)) == ['sheet_01.png', 'sheet_02.png'] and sheets.left_out == 4
    sizes = [tf.io.decode_png(tf.io.read_file(path)).shape for path in sheets.paths]
    assert sizes[0][0] > 2.5 * sizes[1][0] and sizes[0][1] == sizes[1][1] == 1200  # the last holds one row


def test_rows_show_every_picture_in_its_place(tmp_path):
    colours = [[(200, 0, 0), (0, 160, 0)], [(0, 0, 200), (90, 90, 0)]]
    rows = [[contact_sheet.Labelled(picture(colour, 64, 48), 'a') for colour in row] for row in colours]
    rows.append([contact_sheet.Labelled(picture((0, 90, 90), 64, 48), 'a'), contact_sheet.Labelled(b'', 'b')])
    contact_sheet.draw_rows(str(tmp_path / 'page.png'), rows)
    page = tf.io.decode_png(tf.io.read_file(str(tmp_path / 'page.png')), 3).numpy()
    places = [[np.argwhere((page == np.array(colour)).all(-1)).mean(0) for colour in row] for row in colours]
    (a, b), (c, d) = places
    assert a[0] == pytest.approx(b[0], abs=2) and a[1] == pytest.approx(c[1], abs=2)
    assert a[0] < c[0] and a[1] < b[1] and d[0] == pytest.approx(c[0], abs=2)
    assert area(page, (0, 90, 90)) == pytest.approx(area(page, colours[0][0]), rel=0.05)
