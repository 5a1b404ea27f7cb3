"""Sphinx: MyST pages, the furo theme, and the API read from the sources, so that nothing heavy is imported."""
import pathlib
import re

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
html_theme_options = {'light_css_variables': {'font-stack': 'system-ui, sans-serif', 'font-stack--monospace': 'monospace'}}

# The sources are parsed, not imported: TensorFlow and Beam need not be installed to build the pages.
autoapi_dirs = [str(ROOT / package) for package in ('data_prep', 'keras_models', 'pipelines')]
autoapi_root, autoapi_add_toctree_entry, autoapi_keep_files = 'api', False, False
autoapi_options = ['members', 'undoc-members', 'show-module-summary']
autoapi_python_class_content = 'class'
napoleon_google_docstring, napoleon_numpy_docstring, napoleon_use_ivar = True, False, True


def plain_docstring(app, what, name, obj, options, lines):
    """Docstrings are plain text with `code`: what reStructuredText would take for markup is escaped."""
    del app, what, name, obj, options
    for i, line in enumerate(lines):
        parts = re.split(r'(`[^`]+`)', line)
        for j, part in enumerate(parts):
            if part.startswith('`') and part.endswith('`') and len(part) > 2:
                parts[j] = f'``{part[1:-1].strip()}``\\ ' if j + 1 < len(parts) and parts[j + 1][:1].isalnum() else f'``{part[1:-1].strip()}``'
            else:
                parts[j] = re.sub(r'([*|`\\])|(?<=\w)(_)(?!\w)', r'\\\1\2', part)
        lines[i] = ''.join(parts)


def without_links_to_sources(app, name, source):
    """A link to a file outside of docs/ leads somewhere in the repository only; here its text remains."""
    del app, name
    source[0] = re.sub(r'\[([^\]]+)\]\((?:\.\./)+(?!docs)[^)]*\)', r'\1', source[0])


def setup(app):
    app.connect('autodoc-process-docstring', plain_docstring, priority=400)  # before napoleon's 500
    app.connect('source-read', without_links_to_sources)
