"""Trace a pushed version back to its raw files, or a raw file forward to every version made from it.

    python -m pipelines.lineage                                    # the version being served
    python -m pipelines.lineage runs/my/serving/my/1763722800      # any other version
    python -m pipelines.lineage --raw train.tsv                    # in all pipelines below runs/ or of the shared store

The trace shows metrics, model, training run, configuration, commits, examples and the raw files' SHA-256. A raw file is
recognised by its content, whatever its name; for data in an archive, the archive is the raw file. If it is gone, give
its SHA-256.
"""
import datetime
import os
import re
import sys
from collections.abc import Iterator

from data_prep import UserError
from pipelines.core import cli, stage
from pipelines.formats.table import FORMATS

_SHOWN = 20  # raw files listed
_TYPES = {'model': 'Model', 'blessing': 'ModelBlessing', 'infra_blessing': 'InfraBlessing'}
_FORMAT_TYPES = {each + end: kind for each in FORMATS for end, kind in (('', 'Model'), ('_blessing', 'ModelBlessing'))}


def history(store, record: dict) -> list:
    """Return the executions a pushed version came from, newest first.

    Args:
      store: `metadata.Metadata` of the root it was pushed from.
      record: the version's `landmark.json`.

    Raises:
      UserError: it was pushed from another root.
    """
    ids = []
    recorded = record['lineage'].get('artifacts', {})
    for key, type_name in (_TYPES | {key: kind for key, kind in _FORMAT_TYPES.items() if key in recorded}).items():
        pushed = recorded.get(key, {})
        known = {(number, digest) for number, _, digest in store.digests(type_name)}
        if (pushed.get('id'), pushed.get('digest')) not in known:
            raise UserError(f'This version was not pushed from here: its {key}, {pushed.get("digest", "unnamed")[:12]}'
                            ', is not recorded. Give the --pipeline_root it was pushed from.')
        ids.append(pushed['id'])
    found: dict = {}
    while ids:
        new = {execution.id: execution for execution in store.made(ids) if execution.id not in found}
        found |= new
        ids = [number for execution in new.values() for number in execution.inputs]
    return [found[number] for number in sorted(found, reverse=True)]  # an execution begins after its inputs were made


def raw_files_of(execution, root: str) -> list[dict]:
    """Return the rows of the list of raw files that a prepare execution wrote, see `raw_files.read`.

    Raises:
      UserError: it wrote none, or the list is missing or was altered.
    """
    from data_prep.core import files, raw_files
    folder = _here(root, execution.outputs['examples'].uri)
    path = os.path.join(folder, raw_files.LIST)
    recorded = execution.properties.get('raw')
    if not recorded:
        raise UserError(f'prepare {execution.id} did not hash its raw files. Prepare the data again.')
    if not files.exists(path):
        raise UserError(f'{path}, the list of the {recorded["files"]:,} raw files, is missing; its SHA-256 was '
                        f'{recorded["sha256"]}.')
    if raw_files.sha256(path)[0] != recorded['sha256']:
        raise UserError(f'{path} was changed after it was written (its SHA-256 differs). Restore it.')
    return list(raw_files.read(folder))


def uses(store, root: str, digest: str) -> Iterator[tuple]:
    """Yield the data sets a raw file went into: (prepare execution, row, [(last execution, pushed versions)]).

    Args:
      root: pipeline root of the store.
      digest: the file's SHA-256.

    Yields:
      A `UserError` in place of the row if a data set's list of raw files cannot be read.
    """
    for prepared in store.executions('examples'):
        try:
            row = next((row for row in raw_files_of(prepared, root) if row['sha256'] == digest), None)
        except UserError as error:
            yield prepared, error, []
            continue
        if row:
            yield prepared, row, [*_made_of(store, root, prepared)]


def _made_of(store, root: str, prepared) -> Iterator[tuple]:
    """Yield (execution, versions) of every export made from a data set, and of training runs never exported."""
    exports = store.executions('model')
    for run in store.executions('model_run'):
        if prepared.outputs['examples'].id not in run.inputs:
            continue
        of_run = [export for export in exports if run.outputs['model_run'].id in export.inputs]
        yield from ((export, _versions(store, root, export)) for export in of_run)
        if not of_run:
            yield run, []


def _versions(store, root: str, export) -> list[str]:
    """Describe each pushed version of an export, including rollbacks."""
    from data_prep.core import files
    from pipelines.serving import published
    model = {'id': export.outputs['model'].id, 'digest': export.outputs['model'].digest}
    pushes, found = store.executions('pushed_model'), []
    for destination in sorted({_here(root, push.properties['destination'], 2) for push in pushes}):
        there = published.versions(destination)
        found += [f'{version.path}, pushed {version.record["pushed"]}'
                  + (f', the files of {version.origin} again' if version.origin != version.number else '')
                  + (', loaded by serving' if version is there[-1] else '')
                  for version in there if version.record.get('lineage', {}).get('artifacts', {}).get('model') == model]
    own = (_here(root, push.properties['path']) for push in pushes if model['id'] in push.inputs)
    return found + [f'{path}, which was pushed and later removed' for path in own if not files.exists(path)]


def _here(root: str, recorded: str, parts: int = 3) -> str:
    """Return a recorded path, or the matching one below a root that was moved or is named from another folder."""
    from data_prep.core import files
    below = os.path.join(root, *recorded.rstrip('/').split('/')[-parts:])
    return below if files.exists(below) else recorded


def _header(execution) -> str:
    when = datetime.datetime.fromtimestamp(execution.finished, datetime.UTC).isoformat(timespec='seconds')
    return (f'{execution.stage} {execution.id}, {when}, commit {execution.commit or "not recorded"}, '
            f'source {execution.source[:12]}')


def _findings(execution) -> list[str]:
    """Return a stage's recorded facts as lines."""
    found = execution.properties
    if 'metrics' in found:
        numbers = ', '.join(f'{name} {value:.6g}' for name, value in found['metrics']['overall'].items())
        return [f'{numbers}, on {found["examples"]:,} examples',
                f'{"blessed" if found["blessed"] else "not blessed"}: {"; ".join(found["reasons"])}']
    if 'infra_blessed' in found:
        return [found['reason']]
    if models := [(key, model.digest) for key, model in execution.outputs.items() if model.type == 'Model']:
        return [' '.join(model) for model in models]
    if 'model_run' in execution.outputs:
        last = found.get('averaged') or found.get('last') or {}
        numbers = ', '.join(f'{name} {value:.6g}' for name, value in last.items())
        foreign = found.get('foreign') or {}
        return [f'{found.get("steps", 0):,} steps, replicas {found.get("replicas", 1)}{", " * bool(numbers)}{numbers}',
                *[f'started from weights of others, {foreign["licence"]}: {file}, SHA-256 {digest}'
                  for file, digest in zip(foreign.get('files', ()), foreign.get('sha256', {}).values())]]
    return [f'{split}: {counts["written"]:,} of {counts["read"]:,}'
            for split, counts in found.get('counts', {}).items()]


def _configuration(executions: list) -> dict[int, str]:
    """Return, by execution, the configuration sections its result depends on that no earlier one showed, as YAML."""
    import yaml
    shown: dict = {}
    texts = {}
    for execution in reversed(executions):
        values = yaml.safe_load(execution.config)
        own = {key: values[key] for key in ('seed', *stage.get(execution.stage).sections)}
        new = {key: value for key, value in own.items() if shown.get(key) != value}
        shown |= new
        texts[execution.id] = yaml.safe_dump(new, sort_keys=False, allow_unicode=True).strip() if new else ''
    return texts


def show(path: str, root: str) -> None:
    """Print the lineage of a version."""
    from rich.tree import Tree

    from pipelines.core import metadata
    from pipelines.serving import published
    version = published.Version(path)
    if not version.record:
        raise UserError(f'{path} is not a pushed version: it has no readable {published.RECORD}. '
                        '`python -m pipelines.push --list` lists the versions.')
    again = f', the files of {version.origin} again' if version.origin != version.number else ''
    tree = Tree(f'{path}, pushed {version.record["pushed"]}{again}; '
                + (f'damaged: {wrong}' if (wrong := version.damage()) else
                   f'its {len(version.record["files"])} files are those that were pushed'))
    executions = history(metadata.opened(root), version.record)
    texts = _configuration(executions)
    for execution in executions:
        branch = tree.add(_header(execution))
        for line in _findings(execution):
            branch.add(line)
        if 'examples' in execution.outputs:
            _add_raw_files(branch, execution, root)
        if texts[execution.id]:
            branch.add(texts[execution.id])
    _print(tree)


def _add_raw_files(branch, execution, root: str) -> None:
    import yaml
    samples = yaml.safe_load(execution.config)['data'].get('samples')
    try:
        rows = raw_files_of(execution, root)
    except UserError as error:
        branch.add(str(error))
        return
    size = sum(row['bytes'] for row in rows)
    made = (f', generated by source {execution.source[:12]} for data.samples {samples}, with the seed in that source'
            if samples else '')
    listed = branch.add(f'{len(rows):,} raw files, {size:,} bytes{made}')
    for row in rows[:_SHOWN]:
        listed.add(f'{row["file"]}, {row["bytes"]:,} bytes, SHA-256 {row["sha256"]}')
    if len(rows) > _SHOWN:
        listed.add(f'and {len(rows) - _SHOWN:,} more, all in {_here(root, execution.outputs["examples"].uri)}')


def show_uses(file: str, roots: list[str]) -> None:
    """Print every data set, model and version made from a raw file or a SHA-256."""
    from rich.tree import Tree

    from pipelines.core import metadata
    digest = _digest(file)
    tree, unknown = Tree(f'{file}, SHA-256 {digest}'), []
    for root in roots:
        for prepared, row, made in uses(metadata.opened(root), root, digest):
            if isinstance(row, UserError):
                unknown.append(f'{root}: {row}')
                continue
            data_set = tree.add(f'{root}, {_header(prepared)}, as {row["file"]}')
            for execution, versions in made:
                branch = data_set.add(_header(execution))
                for line in versions or ['never pushed' if 'model' in execution.outputs else 'never exported']:
                    branch.add(line)
            if not made:
                data_set.add('never trained on')
    if not tree.children:
        tree.add(f'in no data set of {", ".join(roots) or "runs/, which has none"}')
    for line in unknown:
        tree.add(f'unknown for this one: {line}')
    _print(tree)


def _digest(file: str) -> str:
    from data_prep.core import files, raw_files
    if re.fullmatch('[0-9a-f]{64}', file):
        return file
    if not files.exists(file) or files.is_folder(file):
        raise UserError(f'--raw {file}: there is no such file. Give one file, or its SHA-256.')
    return raw_files.sha256(file)[0]


def _print(tree) -> None:
    from rich.console import Console
    Console(width=1 << 16, highlight=False, markup=False).print(tree)  # cuts no hash; terminals wrap lines


def main(argv=None) -> None:
    flags = cli.parser('lineage', __doc__)
    flags.add_argument('version', nargs='?', metavar='VERSION',
                       help='number or folder of a pushed version (default: the one being served)')
    flags.add_argument('--raw', metavar='FILE', help='trace forward from this raw file instead')
    args = cli.parse(flags, argv)
    if not args:
        return

    def work():
        cli.prepare_libraries()
        if args.raw:
            show_uses(args.raw, _roots(args))
        else:
            show(*_version(args))
    cli.run_command(work)


def _roots(args) -> list[str]:
    """Return the pipeline root the flags name, or all of the shared store or below `runs/`."""
    from pipelines.core import metadata
    if args.config or args.pipeline_root:
        return [args.pipeline_root or cli.find_place(args).root]
    return metadata.roots()


def _version(args) -> tuple[str, str]:
    """Return the version the flags name, and its pipeline root."""
    from pipelines.core import artifacts, metadata
    if args.version and not args.version.isdecimal():
        path = next(reversed(artifacts.version_folders(args.version)), args.version).rstrip('/')
        return path, args.pipeline_root or metadata.root_of(path) or cli.find_place(args).root
    place = cli.find_place(args)
    if args.version:
        return os.path.join(place.destination, args.version), place.root
    versions = artifacts.version_folders(place.destination)
    if not versions:
        raise UserError(f'{place.destination} holds no version. Run `{place.command("push")}` first.')
    return versions[-1], place.root


if __name__ == '__main__':
    main(sys.argv[1:])
