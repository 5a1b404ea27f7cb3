"""Templates of all pages: reports, model cards, reproductions, attention."""
import re

import jinja2


def environment(package: str = 'pipelines.reporting') -> jinja2.Environment:
    """Return a package's template environment; undefined names raise, and text from data is escaped."""
    made = jinja2.Environment(
        loader=jinja2.PackageLoader(package), undefined=jinja2.StrictUndefined, trim_blocks=True,
        lstrip_blocks=True, keep_trailing_newline=True,
        autoescape=jinja2.select_autoescape(('html.j2',), default=False))
    made.filters.update(number='{:.4g}'.format, thousands='{:,}'.format, markdown=_markdown)
    return made


def _markdown(text: str) -> str:
    """Put text from data on one line and escape Markdown in it."""
    return re.sub(r'([\\`*\[\]<>|#])', r'\\\1', ' '.join(str(text).split()))
