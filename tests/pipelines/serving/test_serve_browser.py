"""The page in a real browser: one journey per kind at desktop and phone width, also by keyboard.

    pip install playwright    # the extra `browser`; the browser is Debian's, `apt-get install chromium`
    pytest -m browser

What axe-core finds is checked where AXE names its file, as `make browser` does.
"""
import contextlib
import os
import pathlib
import re
import shutil

import pytest

from pipelines.serving import published, pusher
from support import served, served_kinds, tiny_classifier

CHROMIUM = os.environ.get('CHROMIUM') or shutil.which('chromium')
FLAGS = ('--headless', '--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking',
         '--disable-component-update', '--disable-sync')
WIDTHS = {'desktop': (1280, 900), 'phone': (390, 800)}
pytestmark = [pytest.mark.browser, pytest.mark.skipif(not CHROMIUM, reason='there is no Chromium; CHROMIUM names one')]


@pytest.fixture(scope='module')
def chromium():
    from playwright import sync_api  # not at the top: the other tiers collect this file without it
    with sync_api.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=[*FLAGS])
        yield browser
        browser.close()


@pytest.fixture(params=list(WIDTHS))
def page(request, chromium, server):
    """A page that may ask this server alone, and on which nothing goes wrong unseen."""
    width, height = WIDTHS[request.param]
    with watched(chromium, server, width, height) as page:
        yield page


@contextlib.contextmanager
def watched(chromium, server, width=1280, height=900, **more):
    context = chromium.new_context(viewport={'width': width, 'height': height}, base_url=server.rest, **more)
    page, wrong, elsewhere = context.new_page(), [], []
    page.set_default_timeout(60_000)
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('console', lambda message: wrong.append(message.text) if message.type in ('error', 'warning')
            and 'the server responded with a status of 4' not in message.text else None)
    page.on('request', lambda asked: elsewhere.append(asked.url)
            if not asked.url.startswith((server.rest, 'data:', 'blob:')) else None)
    try:
        yield page
        assert not wrong and not elsewhere, (wrong, elsewhere)
    finally:
        context.close()


def assert_accessible(page):
    """Nothing wider than the window, every control named, and nothing serious for axe-core, if it is here."""
    assert page.evaluate('document.documentElement.scrollWidth - document.documentElement.clientWidth') <= 0
    unnamed = page.eval_on_selector_all('button, input, select, textarea', '''all => all.filter((each) => !each.hidden
        && !(each.innerText || each.ariaLabel || each.labels?.length)).map((each) => each.outerHTML)''')
    assert unnamed == []
    if axe := os.environ.get('AXE'):
        page.evaluate(pathlib.Path(axe).read_text())
        found = page.evaluate('axe.run()')['violations']
        assert [each['id'] for each in found if each['impact'] in ('serious', 'critical')] == []


def test_cards_lead_to_every_model(page, destinations):
    page.goto('/')
    assert {*page.locator('.card h2').all_inner_texts()} == {*destinations}
    assert_accessible(page)
    page.keyboard.press('Tab')
    assert page.evaluate('document.activeElement.innerText') == 'Skip to the content'
    page.get_by_role('link', name='translation').click()
    page.wait_for_url('**/models/translation')


def test_translation_as_one_types(page):
    page.goto('/models/translation')
    page.locator('#source').press_sequentially('Two dogs play', delay=20)
    page.locator('#answer', has_text='TWO DOGS PLAY').wait_for()
    assert page.locator('#alternatives td').first.inner_text() == 'Two dogs play'
    page.locator('#target-words .word').first.focus()
    page.keyboard.press('ArrowRight')
    assert page.locator('#target-words [aria-selected="true"]').inner_text() == 'DOGS'
    assert page.locator('#looked-said').text_content() == 'For DOGS, the largest attention is on dogs.'
    assert '100%' in page.locator('#source-words .word').nth(1).inner_text()
    page.get_by_role('button', name='A man rides a bicycle.').click()
    page.locator('#answer', has_text='A MAN RIDES').wait_for()
    assert_accessible(page)


def test_a_tree_is_drawn(page):
    page.goto('/models/parsing')
    page.get_by_role('button', name='The cat sat on the mat .').click()
    page.locator('#tree svg').wait_for()
    assert page.locator('#tree svg').get_attribute('aria-label') == 'Tree of: The cat sat on the mat .'
    assert page.locator('#tree .phrase').all_text_contents().count('XX') == 7
    page.locator('#source').fill('?')
    page.locator('#tree', has_text='not a well-formed tree').wait_for()
    assert_accessible(page)


def test_images_by_example_file_and_paste(page):
    page.goto('/models/images')
    page.locator('[data-example]').first.click()
    page.locator('#classes li').first.wait_for()
    assert page.locator('#classes li').count() == 5
    page.locator('input[name="layer"]').nth(1).check()
    assert 'Your image: thing' in page.locator('#picture').get_attribute('aria-label')
    best = page.locator('#classes li').first.inner_text()
    page.locator('#file').set_input_files(
        {'name': 'a.png', 'mimeType': 'image/png', 'buffer': tiny_classifier.png(seed=3)})
    page.wait_for_timeout(500)
    page.locator('#classes li').first.wait_for()
    page.evaluate('''async () => {
        const blob = await (await fetch(document.querySelector('[data-example]').dataset.example)).blob();
        const data = new DataTransfer();
        data.items.add(new File([blob], 'pasted.jpg', { type: 'image/jpeg' }));
        dispatchEvent(new ClipboardEvent('paste', { clipboardData: data }));
    }''')
    page.locator('#classes li', has_text=best.splitlines()[0]).first.wait_for()
    large = tiny_classifier.png(height=400, width=300)
    for name, content, said in (('x.png', b'\x89PNG\r\n\x1a\n', 'Unknown image file format'),
                                ('x.jpg', b'no', 'begins with'), ('large.png', large, 'pixels are more than')):
        page.locator('#file').set_input_files({'name': name, 'mimeType': 'image/png', 'buffer': content})
        page.locator('#problem', has_text=said).wait_for()
    assert_accessible(page)


def test_try_on_by_keyboard(page):
    page.goto('/models/try_on')
    page.locator('#wear:not(:disabled)').wait_for()
    page.locator('#persons button').first.focus()
    page.keyboard.press('ArrowRight')
    assert page.locator('#persons [aria-checked="true"]').get_attribute('aria-label') == 'person 2, generated'
    page.locator('#wear').press('Enter')
    page.locator('#after').wait_for()
    page.locator('#slide').press('ArrowRight')
    assert page.locator('#after').evaluate('each => each.style.clipPath') == 'inset(0px 0px 0px 49%)'
    assert_accessible(page)


def test_a_game_and_a_school(page):
    page.goto('/models/nim')
    page.locator('#board button:not(:disabled)').first.wait_for()
    for _ in range(8):  # two heaps of three are empty by then
        if not page.locator('#board button:not(:disabled)').count():
            break
        page.locator('#board button:not(:disabled)').last.press('Enter')
        page.locator('#turn', has_text=re.compile('played|won')).wait_for()
        page.wait_for_timeout(300)
    assert re.search(r'(The machine has|You have) won\.', page.locator('#turn').inner_text())
    page.get_by_label('School a copy of it').check()
    page.locator('#mark', has_text='0 lessons given').wait_for()
    assert page.locator('#mechanic').is_hidden()
    page.locator('#lessons:not(:disabled)').click()
    page.locator('#mark', has_text='20 lessons given').wait_for()
    page.locator('#words').fill('well done')
    page.locator('#words').press('Enter')
    page.locator('#said', has_text='It hears “well”').wait_for()
    page.get_by_role('button', name='Pleasure').click()
    page.locator('#said', has_text='Pleasure.').wait_for()
    assert_accessible(page)


def test_a_push_and_a_rollback_while_the_page_is_open(chromium, server, destinations):
    destination = destinations['translation']
    with watched(chromium, server) as page:
        page.goto('/models/translation')
        first = published.versions(destination)[-1]
        for change in (lambda: pusher.publish(first.path, destination, {}),
                       lambda: pusher.publish(served_kinds.changed(first.path), destination, {}),
                       lambda: pusher.rollback(destination)):
            number = served.version_of(change())
            server.look()
            page.locator('#source').fill(f'it goes on {number}')
            page.locator('#changed', has_text=f'Version {number} answers now.').wait_for()
            assert page.locator('#version').text_content() == str(number)
        page.locator('#answer', has_text='IT GOES ON').wait_for()
        assert page.locator('#problem').is_hidden()


def test_twenty_tabs_at_once(chromium, server):
    context = chromium.new_context(base_url=server.rest)
    tabs = [context.new_page() for _ in range(20)]
    for tab in tabs:
        tab.goto('/models/translation', wait_until='commit')
    for number, tab in enumerate(tabs):
        tab.set_default_timeout(60_000)
        tab.locator('#source').fill(f'tab {number}')
    for number, tab in enumerate(tabs):
        tab.locator('#answer', has_text=re.compile(f'^TAB {number}$')).wait_for()
    context.close()


def test_a_page_of_another_site_cannot_ask(chromium, server):
    """Its script is served from another port of this machine, which is another origin."""
    import http.server
    import threading

    class Attacker(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header('Content-Type', 'text/html')
            self.end_headers()
            self.wfile.write(b'<p>another site</p>')

        def log_message(self, *_):
            pass
    other = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Attacker)
    threading.Thread(target=other.serve_forever, daemon=True).start()
    try:
        page = chromium.new_page()
        page.goto(f'http://127.0.0.1:{other.server_port}/')
        found = page.evaluate('''async (url) => {
            try { return (await fetch(url, { method: 'POST', body: '{"instances": ["x"]}', mode: 'no-cors' })).type; }
            catch (error) { return String(error); }
        }''', f'{server.rest}/v1/models/translation:predict')
        assert found == 'opaque' or 'Failed to fetch' in found  # nothing can be read
        counts = served.ask_raw(f'{server.rest}/monitoring/prometheus/metrics')[1].decode()
        assert 'API="predict"' not in counts  # and the model was not asked
        page.close()
    finally:
        other.shutdown()
        other.server_close()
