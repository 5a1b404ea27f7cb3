"""Sphinx: MyST pages, the furo theme, and the API read from the sources, so that nothing heavy is imported."""
import pathlib
import re

from sphinx.errors import ExtensionError

ROOT = pathlib.Path(__file__).resolve().parent.parent

project, author, release = 'Landmark', 'The Landmark authors', '0.1.0'
extensions = ['myst_parser', 'sphinx.ext.napoleon', 'autoapi.extension']
exclude_patterns = ['_build', '.venv*', 'requirements.txt']
suppress_warnings = ['autoapi.python_import_resolution', 'ref.python']  # two modules may each have a `Config`

myst_enable_extensions = ['colon_fence', 'deflist']
myst_heading_anchors = 3

html_theme, html_title = 'furo', 'Landmark'
html_show_sphinx = html_show_copyright = False
html_copy_source = html_show_sourcelink = False
html_static_path, html_css_files, html_js_files = ['_static'], ['results.css'], [('sort.js', {'defer': 'defer'})]
html_theme_options = {'light_css_variables': {
    'font-stack': 'system-ui, sans-serif', 'font-stack--monospace': 'monospace'}}

# The sources are parsed, not imported: TensorFlow and Beam need not be installed to build the pages.
autoapi_dirs = [str(ROOT / package) for package in ('data_prep', 'keras_models', 'pipelines')]
autoapi_root, autoapi_add_toctree_entry, autoapi_keep_files = 'api', False, False
autoapi_options = ['members', 'undoc-members', 'show-module-summary']
autoapi_python_class_content = 'class'
napoleon_google_docstring, napoleon_numpy_docstring, napoleon_use_ivar = True, False, True


SECTIONS = re.compile(r'(Args|Attributes|Returns|Raises|Yields):')


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text with `code`: what reStructuredText would take for markup is escaped.

    A paragraph with indented lines that is not a section such as Args or Returns is shown verbatim.
    """
    del app, what, name, obj, options
    paragraphs, section = '\n'.join(lines).split('\n\n'), False
    for i, paragraph in enumerate(paragraphs):
        rows = paragraph.split('\n')
        section = bool(SECTIONS.fullmatch(rows[0])) or section and rows[0].startswith(' ')
        if not section and any(row.startswith(' ') for row in rows):
            paragraphs[i] = '::\n\n' + '\n'.join(f'    {row}' for row in rows)
        else:
            paragraphs[i] = escaped(paragraph)
    lines[:] = '\n\n'.join(paragraphs).split('\n')


def escaped(text):
    parts = re.split(r'(`[^`]+`)', text)
    for i, part in enumerate(parts):
        if re.fullmatch(r'`[^`]+`', part):
            joined = i + 1 < len(parts) and re.match(r'\w', parts[i + 1])
            parts[i] = f'``{" ".join(part[1:-1].split())}``' + ('\\ ' if joined else '')
        else:
            parts[i] = re.sub(r'([*|\\`])|(?<=\w)_(?!\w)', lambda found: '\\' + found[0], part)
    return ''.join(parts)


FIRST = {}


def only_once(app, what, name, obj, skip, options):
    """Skip the second assignment of a constant, so that it is shown once."""
    del app, options
    return True if what == 'data' and FIRST.setdefault(name, obj) is not obj else skip


def without_links_to_sources(app, name, source):
    """Reduce links to files outside of docs/ to their text, because they work only in the repository."""
    folder = pathlib.Path(app.srcdir, name).parent

    def reduced(link):
        target = (folder / link['path'].partition('#')[0]).resolve()
        return link[0] if target.is_relative_to(app.srcdir) else link['text']
    source[0] = re.sub(r'\[(?P<text>[^\]]+)\]\((?P<path>\.\./[^)]*)\)', reduced, source[0])


def hosts(app, exception):
    """List links to other hosts, which are not fetched, and refuses a page that would fetch something by itself."""
    if exception or app.builder.format != 'html':
        return
    out, links = pathlib.Path(app.outdir), {}
    for page in sorted(out.rglob('*.html')):
        text = page.read_text()
        for link in re.findall(r'<a [^>]*href="(https?://[^"]+)"', text):
            links.setdefault(link, page.relative_to(out))
        for found in re.findall(r'<(?:script|link|img|iframe)\b[^>]*(?:src|href)="(?:https?:)?//[^"]+"', text):
            raise ExtensionError(f'{page.name} fetches from another host: {found}')
    for sheet in out.rglob('*.css'):
        for found in re.findall(r'(?:@import|url\()[^;)]*(?:https?:)?//[^;)]+', sheet.read_text()):
            raise ExtensionError(f'{sheet.name} fetches from another host: {found}')
    (out / 'external-links.txt').write_text(''.join(f'{link} ({page})\n' for link, page in sorted(links.items())))


def setup(app):
    app.connect('build-finished', hosts)
    app.connect('autodoc-process-docstring', plain_docstring, priority=400)  # before napoleon's 500
    app.connect('autoapi-skip-member', only_once)
    app.connect('source-read', without_links_to_sources)
