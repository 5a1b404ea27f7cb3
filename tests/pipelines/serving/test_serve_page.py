"""Requests and responses of the page without a browser; test_serve_browser.py uses one."""
import base64
import json
import re

import numpy as np
import pytest
import tensorflow as tf

from data_prep.people import sample_people
from pipelines.serving import published
from pipelines.serving.studio import Studio
from support import people_parser, served, tiny_classifier


def act(server, model, action, body):
    return served.ask(f'{server.rest}/models/{model}/try/{action}', body, {
        'Content-Type': 'application/octet-stream' if isinstance(body, bytes) else 'application/json'}.items())


def test_pages_ask_no_other_host_and_run_nothing_inline(server, destinations):
    for path in ('/', *(f'/models/{name}' for name in destinations)):
        status, page, headers = served.ask_raw(server.rest + path)
        text = page.decode()
        assert status == 200 and headers['Content-Type'] == 'text/html; charset=utf-8'
        assert headers['Content-Security-Policy'].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert not re.search(r'<script(?! type="module" src="/static/)|<style|style="|\son\w+=', text)
        assert {*re.findall(r'(?:src|href)="(\w+:[^"]*)"', text)} == set()
        for local in re.findall(r'(?:src|href)="(/[^"#]*)"', text):
            assert served.ask_raw(server.rest + local)[0] == 200, local
    page = served.ask_raw(server.rest)[1].decode()
    assert all(f'href="/models/{name}"' in page for name in destinations)


@pytest.mark.parametrize('path', [
    '/models/other', '/static/other.css', '/static/..%2f__init__.py', '/static/%2e%2e/__init__.py',
    '/models/nim/report',
    '/models/images/pictures/example/9', '/models/try_on/pictures/person/999', '/models/try_on/pictures/x/0',
    '/models/try_on/pictures/person/..%2f..%2fetc'])
def test_no_path_of_a_request_is_opened(server, path):
    assert served.ask_raw(server.rest + path)[0] == 404


def test_an_open_page_hears_of_the_version(server, destinations):
    status, found = served.ask(f'{server.rest}/page/models')
    assert status == 200 and found == {name: published.versions(path)[-1].number for name, path in destinations.items()}


def test_translation(server):
    status, found = act(server, 'translation', 'text', {'text': '  A man\n rides  a bicycle. '})
    assert status == 200 and found['answer'] == 'A MAN RIDES A BICYCLE.' and found['score'] == -0.25
    assert [each['text'] for each in found['alternatives']] == ['A MAN RIDES A BICYCLE.', 'A man rides a bicycle.']
    assert found['source'] == 'A man rides a bicycle.'.split() and found['target'] == found['answer'].split()
    np.testing.assert_array_equal(found['attention'], np.eye(5))
    assert act(server, 'translation', 'text', {'text': ''})[1]['answer'] == ''
    for body, said in (({'text': 'x' * 5001}, 'at most 5,000'), ({'text': 5}, 'at most 5,000'),
                       ({}, 'text is missing')):
        status, found = act(server, 'translation', 'text', body)
        assert status == 400 and said in found['error']
    page = served.ask_raw(f'{server.rest}/models/translation')[1].decode()
    assert page.index('data-example="Two dogs play."') < page.index('data-example="A man rides a bicycle."')


def test_parsing(server):
    tree = act(server, 'parsing', 'text', {'text': 'The cat'})[1]['tree']
    assert tree == {'label': 'S', 'word': '', 'parts': [{'label': 'XX', 'word': word, 'parts': []}
                                                        for word in ('The', 'cat')]}
    found = act(server, 'parsing', 'text', {'text': '?'})[1]
    assert found['tree'] is None and found['answer'] == '(('


def test_images(server, destinations):
    version = published.versions(destinations['images'])[-1].path
    model, image = tf.saved_model.load(version), tiny_classifier.jpeg(seed=1)
    expected = model.signatures['serving_default'](image=tf.constant([image]))
    status, found = act(server, 'images', 'image', image)
    assert status == 200
    assert [each['label'].encode() for each in found['classes']] == expected['labels'].numpy()[0].tolist()
    np.testing.assert_allclose([each['probability'] for each in found['classes']], expected['probabilities'][0],
                               atol=1e-5)
    scores = model.score_map(tf.constant(image), tf.constant(16)).numpy()
    best = found['classes'][0]['label']
    np.testing.assert_allclose(np.reshape(found['map']['scores'][best], scores.shape[:2]), scores[..., int(best[1:])],
                               atol=1e-4)
    assert served.ask_raw(f'{server.rest}/models/images/pictures/example/0')[1] == image
    large = tiny_classifier.png(height=400, width=300)
    for damaged, status in ((b'', 400), (b'GIF89a', 400), (image[:200], 400), (large, 413)):
        assert act(server, 'images', 'image', damaged)[0] == status


def test_try_on(server):
    status, found = act(server, 'try_on', 'people', {})
    numbers = [each['number'] for each in found['samples']]
    assert status == 200 and {each['from'] for each in found['samples']} == {'made'} and len(numbers) == 8
    garment = served.ask_raw(f'{server.rest}/models/try_on/pictures/garment/3')[1]
    assert tf.io.decode_image(garment).shape == [64, 48, 3]
    status, worn = act(server, 'try_on', 'wear', {'person': 0, 'garment': 3})
    assert status == 200 and base64.b64decode(worn['image']) == garment == base64.b64decode(worn['warped'])
    assert tf.io.decode_png(base64.b64decode(worn['parse'])).shape[:2] == [64, 48]
    one = {name: base64.b64encode(garment).decode() for name in ('image', 'parse')}
    for body, said in (({'person': 0, 'garment': 99}, 'garment is not one of the samples'),
                       ({'person': one, 'garment': 1}, 'The OpenPose file (openpose-json) is missing.'),
                       ({'person': {**one, 'pose_json': 'e30='}, 'garment': 1}, 'cannot be used: no person'),
                       ({'person': {**one, 'image': 'AAAA', 'pose_json': 'e30='}, 'garment': 1}, 'image file format'),
                       ({'person': {**one, 'image': '*'}, 'garment': 1}, 'image is not base64'),
                       ({'garment': 1}, 'person is missing')):
        status, found = act(server, 'try_on', 'wear', body)
        assert status == 400 and said in found['error'], found


def test_photographs_need_a_parser(server):
    page = served.ask_raw(f'{server.rest}/models/try_on')[1].decode()
    assert '--parser FILE.onnx' in page and 'person-photo' not in page
    status, found = act(server, 'try_on', 'photograph', {'kind': 'person', 'photograph': ''})
    assert status == 400 and 'started without --parser' in found['error']


@pytest.mark.slow  # downloads BlazePose, which is not part of Landmark, from the package index
def test_two_photographs_become_a_try_on(destinations, blazepose):
    made = sample_people.make_person(1, 50_005, (320, 240))
    person, garment = (tf.io.encode_jpeg(pixels).numpy() for pixels in (made.image, made.cloth))
    with served.running(destinations, studio=Studio(blazepose, str(people_parser.PATH), 'cihp')) as server:
        assert 'person-photo' in served.ask_raw(f'{server.rest}/models/try_on')[1].decode()
        found = {}
        for kind, content in (('person', person), ('garment', garment)):
            status, found[kind] = act(server, 'try_on', 'photograph', {
                'kind': kind, 'photograph': base64.b64encode(content).decode()})
            assert status == 200 and found[kind]['findings'] == []
        assert [*found['person']['steps']] == ['photograph', 'pose', 'parse', 'agnostic']
        files = {kind: answer['files'] for kind, answer in found.items()}
        assert {*files['person']} == {'image', 'parse', 'pose_json'} and {*files['garment']} == {'cloth', 'cloth_mask'}
        assert tf.io.decode_image(base64.b64decode(files['person']['image'])).shape == [128, 96, 3]
        assert act(server, 'try_on', 'wear', files)[0] == 200
        for body, said in (({'kind': 'dog', 'photograph': ''}, 'neither person nor garment'),
                           ({'kind': 'person', 'photograph': '*'}, 'is not base64')):
            status, answer = act(server, 'try_on', 'photograph', body)
            assert status == 400 and said in answer['error']
        large = base64.b64encode(tiny_classifier.png(height=400, width=300)).decode()
        [said] = act(server, 'try_on', 'photograph', {'kind': 'garment', 'photograph': large})[1]['findings']
        assert 'more than data.max_pixels 100,000' in said


def test_a_game_against_the_pushed_machine(server):
    state = act(server, 'nim', 'start', {})[1]
    assert len(state['board']) == 2 and sum(state['board']) > 3 and state['opponents'] == ['perfect', 'random']
    assert {each['name'] for each in state['legal']} == {
        f'{"ab"[heap]}{n}' for heap, men in enumerate(state['board']) for n in range(1, men + 1)}
    after = act(server, 'nim', 'move', {'board': [3, 3], 'move': 0, 'room': None})[1]  # a1: leaves 2 3
    assert re.fullmatch('[ab][123]', after['machine']) and sum(after['board']) < 5 and after['memories'] == []
    over = act(server, 'nim', 'move', {'board': [1, 0], 'move': 0, 'room': None})[1]
    assert over['over'] and over['result'] == -1 and over['machine'] is None  # who took the last man has won
    won = act(server, 'nim', 'move', {'board': [2, 0], 'move': 0, 'room': None})[1]
    assert won['over'] and won['result'] == 1 and won['machine'] == 'a1'
    for body in ({'board': [9, 9], 'move': 0}, {'board': [1], 'move': 0}, {'board': [1, 0], 'move': 1},
                 {'board': [1, 0], 'move': 'a1'}, {'board': 'x', 'move': 0}, {'move': 0}):
        assert act(server, 'nim', 'move', {'room': None, **body})[0] == 400


def test_a_copy_is_schooled_and_the_pushed_machine_stays_as_it_is(server):
    opened = act(server, 'nim', 'school', {})[1]
    room = opened['room']
    taught = act(server, 'nim', 'school', {'room': room, 'lessons': 40, 'against': 'perfect'})[1]
    assert taught['lessons'] == 40 and len(taught['marks']) == 2 and taught['marks'][1] > taught['marks'][0]
    moved = act(server, 'nim', 'move', {'board': [3, 3], 'move': 0, 'room': room})[1]
    assert moved['memories'] == [] and moved['votes'] is None  # a schoolmaster is shown nothing inside
    pressed = act(server, 'nim', 'school', {'room': room, 'key': 'pleasure'})[1]
    assert len(pressed['marks']) == 3
    for _ in range(4):
        heard = act(server, 'nim', 'school', {'room': room, 'words': 'Wrong!', 'board': [3, 3]})[1]['heard']
        act(server, 'nim', 'school', {'room': room, 'key': 'pain'})
    assert heard == ['wrong!']  # what it does inside is not shown
    answered = act(server, 'nim', 'school', {'room': room, 'words': 'Mover?', 'board': [3, 3]})[1]
    assert answered['heard'] == ['mover'] and len(answered['said'].split()) == 3
    assert act(server, 'nim', 'school', {})[1]['marks'] == opened['marks']  # another copy knows nothing of this
    assert act(server, 'nim', 'school', {'room': 'guessed', 'key': 'pain'})[0] == 404
    assert act(server, 'nim', 'school', {'room': room, 'lessons': 1, 'against': 'me'})[0] == 400


def test_what_a_kind_does_not_do_is_not_there(server):
    assert served.ask_raw(f'{server.rest}/models/nim/try/text', b'{}')[0] == 404
    assert served.ask_raw(f'{server.rest}/models/nim/try/move', b'[1')[0] == 400
    assert served.ask_raw(f'{server.rest}/models/nim/try/move', json.dumps([1]).encode())[0] == 400
