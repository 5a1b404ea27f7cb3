"""Parse maps of photographs: label maps, parsers as ONNX files, and existing maps."""
import numpy as np
import pytest
import tensorflow as tf
from onnx import TensorProto, helper, numpy_helper

from data_prep import UserError
from data_prep.people import person, sample_people
from data_prep.photos import labels
from data_prep.photos.parser import ExistingMap, Parser, UnusableMap
from support import people_parser
from support.photographs import overlap


def test_label_maps_are_translated_by_name():
    assert labels.table('cihp').tolist() == list(range(20))
    lip, atr = labels.table('lip'), labels.table('atr')
    assert [n for n in range(20) if lip[n] != n] == [10] and person.LABELS[lip[10]] == 'dress'
    named = {theirs: person.LABELS[ours] for theirs, ours in zip(labels.MAPS['atr'], atr)}
    assert {theirs: ours for theirs, ours in named.items() if theirs != ours} == {'belt': 'pants', 'bag': 'background'}
    assert labels.choose('', 20, 'p') == 'lip' and labels.choose('', 18, 'p') == 'atr'
    assert labels.choose('cihp', 20, 'p') == 'cihp'
    for name, count, said in (('lpi', 20, 'Did you mean lip'), ('atr', 20, 'the map has 18 labels, but p has 20'),
                              ('', 7, "Pascal-Person-Part's 7 labels"), ('', 33, 'it has 33 labels')):
        with pytest.raises(UserError, match=said):
            labels.choose(name, count, 'p')


def test_the_neck_of_atr_becomes_torso_skin():
    found = np.full((20, 10), labels.FACE, np.uint8)
    nose, chin = np.array([5., 4]), np.array([5., 9])
    split = labels.with_neck(found, 'atr', nose, chin)
    assert (split[:10] == labels.FACE).all() and (split[10:] == labels.TORSO_SKIN).all()
    assert labels.with_neck(found, 'lip', nose, chin) is found


def network(path, outputs, shape=(1, 3, 48, 36), kind=TensorProto.FLOAT):
    """Write an ONNX file whose outputs are 1 x 1 convolutions: name -> kernel [labels, 3]."""
    nodes = [helper.make_node('Conv', ['input', f'{name}_kernel'], [name]) for name in outputs]
    constants = [numpy_helper.from_array(np.float32(kernel)[..., None, None], f'{name}_kernel')
                 for name, kernel in outputs.items()]
    results = [helper.make_tensor_value_info(name, kind, [1, len(kernel), *shape[2:]])
               for name, kernel in outputs.items()]
    inputs = [helper.make_tensor_value_info('input', kind, shape)]
    graph = helper.make_graph(nodes, 'network', inputs, results, constants)
    path.write_bytes(helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], ir_version=8)
                     .SerializeToString())
    return str(path)


def by_colour(count=20):
    """Return a kernel that scores red as a top, green as a face and everything else as background; input is BGR."""
    kernel = np.zeros((count, 3))
    kernel[0] = -0.5
    kernel[5], kernel[13] = (-1, -1, 1), (-1, 1, -1)
    return kernel


@pytest.mark.parametrize('shape', [(1, 3, 48, 36), (1, 3, 64, 64), ('n', 3, 'h', 'w')])
def test_labels_are_aligned_with_the_image(tmp_path, shape):
    pixels = np.full((161, 121, 3), 0, np.uint8)
    pixels[20:60, 40:90], pixels[80:140, 30:100] = (0, 255, 0), (255, 0, 0)
    outputs = {'first': -by_colour(), 'fusion': by_colour(), 'edge': np.ones((2, 3))}
    found = Parser(network(tmp_path / 'net.onnx', outputs, shape)).parse(pixels)
    assert found.shape == (161, 121) and found.dtype == np.uint8
    for label, part in ((13, np.s_[20:60, 40:90]), (5, np.s_[80:140, 30:100])):
        truth = np.zeros(found.shape, bool)
        truth[part] = True
        assert overlap(found == label, truth) > 0.9
        np.testing.assert_allclose(np.argwhere(found == label).mean(0), np.argwhere(truth).mean(0), atol=1)


def test_the_parser_of_the_tests_parses_drawn_people():
    """The parser was trained on drawn people; Landmark includes no published one."""
    parser = Parser(str(people_parser.PATH), 'cihp')
    intersection = union = 0
    for number in range(50_000, 50_006):
        truth = sample_people.make_person(1, number, (512, 384))
        found = parser.parse(truth.image)
        intersection += np.count_nonzero((found == truth.parse) & (found > 0))
        union += np.count_nonzero((found > 0) | (truth.parse > 0))
    assert intersection / union > 0.6


def test_files_that_are_not_parsers_are_refused(tmp_path):
    (tmp_path / 'text.onnx').write_text('none')
    seven = np.ones((7, 3))
    for path, said in (
            (str(tmp_path / 'none.onnx'), 'not a file'), (str(tmp_path / 'text.onnx'), 'onnxruntime cannot read it'),
            (network(tmp_path / 'a.onnx', {'out': seven}), "Pascal-Person-Part's 7 labels"),
            (network(tmp_path / 'b.onnx', {'out': np.ones((20, 4))}, (1, 4, 8, 8)), r'takes one, float32 \[1, 3')):
        with pytest.raises(UserError, match=said) as error:
            Parser(path)
        assert path in str(error.value)


def test_an_existing_parse_map_must_fit_its_image():
    image = np.zeros((8, 6, 3), np.uint8)
    png = tf.io.encode_png(np.full((8, 6, 1), 5, np.uint8)).numpy()
    assert (ExistingMap('a.png', png).parse(image) == 5).all()
    unknown = tf.io.encode_png(np.full((8, 6, 1), 99, np.uint8)).numpy()
    for content, size, said in ((png, (4, 3), 'a.png has 6 x 8 pixels, but its image has 3 x 4'),
                                (b'no', (8, 6), 'not a PNG'), (unknown, (8, 6), 'labels that LIP does not')):
        with pytest.raises(UnusableMap, match=said):
            ExistingMap('a.png', content).parse(np.zeros((*size, 3), np.uint8))
