"""The web page at `/`: a card for each model, and a way to try each kind of model.

Jinja2 renders the HTML; JavaScript and styles are static files. Uploads are processed in memory and never written to
disk.
"""
import importlib.resources
import json
import time
from collections.abc import Callable

from aiohttp import web

from data_prep import UserError
from pipelines.reporting import pages
from pipelines.serving.failure import Failure, invalid
from pipelines.serving.models import AVAILABLE, Model, Version
from pipelines.serving.page import cards, people, pictures, play, text

_TYPES = {'css': 'text/css', 'js': 'text/javascript', 'svg': 'image/svg+xml'}
_KINDS = {'text': text, 'tree': text, 'image': pictures, 'try_on': people, 'play': play}
# A report is one page with inline styles and no scripts.
_REPORT_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


class Page:
    """Handlers of one server's page.

    Args:
      server: provides the models, bounds and settings.
    """

    def __init__(self, server):
        self._server, self._models = server, server.models
        self._templates = pages.environment(__name__)
        folder = importlib.resources.files(__name__) / 'static'
        self._static = {file.name: file.read_bytes() for file in folder.iterdir() if file.name.split('.')[-1] in _TYPES}
        self.cards = cards.Cards(self._models)
        self.rooms = play.Rooms()
        self.people = people.Wardrobe(server.settings.samples)
        self.studio = server.settings.studio

    def routes(self) -> list[web.RouteDef]:
        return [web.get('/', self.index), web.get('/static/{name}', self.static), web.get('/page/models', self.status),
                web.get('/models/{model}', self.model), web.get('/models/{model}/report', self.report),
                web.get('/models/{model}/pictures/{kind}/{number}', self.picture),
                web.post('/models/{model}/try/{action}', self.act)]

    async def index(self, request: web.Request) -> web.Response:
        found = [await self.cards.of(model, version) for model, version in self._served()]
        return self._html('index.html.j2', cards=found, server=self._server.addresses)

    async def model(self, request: web.Request) -> web.Response:
        model, version = self._find(request)
        card = await self.cards.of(model, version)
        examples = await self.call(_examples, version, card['kind'])
        return self._html('model.html.j2', card=card, examples=examples, rest=self._server.addresses['rest'],
                          takes_photographs=self.studio is not None)

    async def status(self, request: web.Request) -> web.Response:
        """Report which versions answer now, so that an open page can detect a change."""
        return _json({model.name: version.number for model, version in self._served()})

    async def static(self, request: web.Request) -> web.Response:
        name = request.match_info['name']
        if name not in self._static:  # a table look-up: no path is opened
            raise web.HTTPNotFound
        return web.Response(body=self._static[name], content_type=_TYPES[name.split('.')[-1]], charset='utf-8',
                            headers={'Cache-Control': 'no-cache'})

    async def report(self, request: web.Request) -> web.Response:
        model, version = self._find(request)
        page = await self.cards.report(model, version)
        if page is None:
            raise web.HTTPNotFound(text='This machine has no report of this model.')
        return web.Response(body=page, content_type='text/html', charset='utf-8',
                            headers={'Content-Security-Policy': _REPORT_POLICY})

    async def picture(self, request: web.Request) -> web.Response:
        """Return an image of the examples, or of the people and garments to choose from."""
        model, version = self._find(request)
        kind, number = request.match_info['kind'], request.match_info['number']
        if not number.isdecimal() or len(number) > 6:
            raise web.HTTPNotFound
        if kind == 'example':
            found = await self.call(pictures.example, version, int(number))
        else:
            found = await self.call(self.people.picture, model, version, kind, int(number))
        if found is None:
            raise web.HTTPNotFound
        return web.Response(body=found, content_type='image/png' if found.startswith(b'\x89PNG') else 'image/jpeg',
                            headers={'Cache-Control': 'private, max-age=60'})

    async def act(self, request: web.Request) -> web.Response:
        """Handle an action on a model's page: the body is JSON or an image's bytes, the answer JSON."""
        start, model, _ = time.monotonic(), *self._find(request)
        action = request.match_info['action']
        body = await self._server.rest.read(request)
        with self._models.use(model.name) as version:
            kind = cards.kind(version)
            handler: Callable | None = getattr(_KINDS.get(kind), 'ACTIONS', {}).get(action)
            if handler is None:
                raise web.HTTPNotFound
            given = body if request.content_type.startswith(('image/', 'application/octet')) else _object(body)
            try:
                answer = await handler(self, model, version, given)
            except (UserError, KeyError, TypeError, IndexError) as error:
                what = f'{error.args[0]} is missing' if isinstance(error, KeyError) else str(error)
                raise invalid(what) from error
            self._models.monitor.request(model.name, 'OK', action, 'PAGE', time.monotonic() - start)
            return _json({**answer, 'version': version.number,
                          'milliseconds': round(1000 * (time.monotonic() - start))})

    # Used by the kinds of models.

    async def predict(self, version: Version, signature: str, inputs: dict) -> dict:
        return await self._models.predict(version, signature, inputs, self._server.settings.bounds.wait)

    async def call(self, function: Callable, *arguments):
        return await self._models.call(self._server.settings.bounds.wait, function, *arguments)

    def _served(self) -> list[tuple[Model, Version]]:
        return [(model, model.find()) for _, model in sorted(self._models.models.items())
                if any(version.state == AVAILABLE for version in model.versions.values())]

    def _find(self, request: web.Request) -> tuple[Model, Version]:
        try:
            model = self._models.get(request.match_info['model'])
            return model, model.find()
        except Failure as failure:
            raise web.HTTPNotFound(text=failure.message) from failure

    def _html(self, name: str, **values) -> web.Response:
        return web.Response(text=self._templates.get_template(name).render(values), content_type='text/html',
                            headers={'Cache-Control': 'no-store'})


def _examples(version: Version, kind: str) -> list:
    return _KINDS[kind].examples(version) if kind in _KINDS else []


def _object(body: bytes) -> dict:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise invalid('The body is not JSON.') from error
    if not isinstance(found, dict):
        raise invalid('The body is not a JSON object.')
    return found


def _json(value: dict) -> web.Response:
    return web.Response(text=json.dumps(value, ensure_ascii=False, allow_nan=False), content_type='application/json',
                        headers={'Cache-Control': 'no-store'})
