"""Publish results: a page for each finished table and figure, and an index, as Markdown for the docs.

Each page is rendered from a JSON file beside it, which holds its numbers; its figures are files beside it, too.
Third-party data are not published: for a figure that shows them, the page has the command that draws it.
"""
import collections
import dataclasses
import os
import pathlib
import re

from data_prep import UserError
from data_prep.core import records
from pipelines.reporting import pages
from pipelines.reproduction import experiments, results
from pipelines.reproduction.experiments import Experiment
from pipelines.reproduction.results import Found

LARGEST = 150_000  # bytes of a figure
VERDICTS = ('shows', 'not clear', 'does not show', 'not measured')  # in the order of the index


def publish(runs: str, folder: str) -> list[str]:
    """Publish finished items, judge all by their claims as they now stand, and render all pages and the index again.

    Args:
      runs: the folder `reproduce` writes to.
      folder: of the published pages; items that are not in `runs` keep their numbers.

    Returns:
      Names of the items whose numbers are new.

    Raises:
      UserError: no item is finished or published, or an earlier version wrote its results.
    """
    published = []
    for name in experiments.names():
        source = os.path.join(runs, name, results.FOUND)
        try:
            found = results.read(source)
        except FileNotFoundError:
            continue
        except TypeError as error:
            raise UserError(f'{source}: an earlier version wrote it. Run `python -m pipelines.reproduce {name}` '
                            'again.') from error
        _keep(experiments.load(name), found, pathlib.Path(source).parent, pathlib.Path(folder))
        published.append(name)
    _judge_again(folder)
    texts = written(folder)
    if len(texts) == 1:  # the index alone
        raise UserError(f'{runs}: no item is finished. `python -m pipelines.reproduce --list` lists them.')
    for file, text in texts.items():
        records.write_atomically(os.path.join(folder, file), text.encode())
    return published


def written(folder: str) -> dict[str, str]:
    """Return relative path -> text of every page, rendered from the JSON files of a folder, and of their index."""
    templates, texts, rows = pages.environment(), {}, []
    for name in experiments.names():
        experiment, file = experiments.load(name), os.path.join(folder, f'{name}.json')
        found = results.read(file) if os.path.exists(file) else None
        rows.append({'experiment': experiment, 'found': found, 'verdict': _verdict(experiment, found)})
        if found:
            texts[f'{name}.md'] = templates.get_template('result.md.j2').render(results.shown(experiment, found))
    texts['index.md'] = templates.get_template('results.md.j2').render(rows=rows)
    return texts


def _judge_again(folder: str) -> None:
    for name in experiments.names():
        experiment, file = experiments.load(name), os.path.join(folder, f'{name}.json')
        if os.path.exists(file):
            found = results.read(file)
            verdicts = results.judged(experiment, found.scale, found.table)
            if verdicts != found.verdicts:
                results.save(dataclasses.replace(found, verdicts=verdicts), file)


def _keep(experiment: Experiment, found: Found, source: pathlib.Path, folder: pathlib.Path) -> None:
    """Write the JSON file and the figures of one item."""
    own = folder / f'{found.item}.json'
    own.parent.mkdir(parents=True, exist_ok=True)
    for old in own.parent.glob(f'{own.stem}-*'):
        old.unlink()
    figures = []
    for number, figure in enumerate(found.figures, 1):
        kept = {**figure, 'file': '', 'html': '', 'omitted': ''}
        image = re.match('<img src="([^"]+)"', figure['html'])
        content = (source / image[1]).read_bytes() if image else figure['html'].encode()
        if figure['shows_data'] and experiment.needs:
            kept['omitted'] = 'shows images or sentences of third-party data'
        elif len(content) > LARGEST:
            kept['omitted'] = f'has {len(content) // 1000} KB, more than a page should'
        else:
            kept['file'] = f'{own.stem}-{number}{pathlib.Path(image[1]).suffix if image else ".html"}'
            records.write_atomically(str(own.with_name(kept['file'])), content)
        figures.append(kept)
    results.save(dataclasses.replace(found, figures=figures, commands=[]), str(own))  # commands have local paths


def _verdict(experiment: Experiment, found: Found | None) -> str:
    """Summarise the verdicts on an item's claims for the index."""
    if not found:
        return 'not run' if experiment.why_not_run else 'not published yet'
    words = collections.Counter(each['verdict'] for each in found.verdicts)
    return ', '.join(f'{word} {words[word]}' if words.total() > 1 else word
                     for word in VERDICTS if word in words) or 'no claim'
