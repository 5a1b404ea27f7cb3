"""The repository besides its code: pre-commit checks, the workflow, the citation, file locations."""
import ast
import re

import yaml

from support.commands import ROOT


def read(name: str):
    return yaml.safe_load((ROOT / name).read_text())


def lint() -> set[str]:
    """The programs that `make lint` runs."""
    recipe = re.search(r'^lint: install\n((?:\t.*\n)+)', (ROOT / 'Makefile').read_text(), re.M)[1]
    return {*re.findall(r'\$\(BIN\)/(\S+)', recipe)}


def test_a_commit_is_checked_by_the_programs_of_make_lint():
    hooks = [hook for repo in read('.pre-commit-config.yaml')['repos'] for hook in repo['hooks']]
    programs = {hook['entry'].split()[0].removeprefix('.venv/bin/') for hook in hooks}
    assert programs == {*lint(), 'python'} and lint() == {'ruff', 'codespell', 'lint-imports', 'mypy'}


def test_the_workflow_runs_what_ci_runs():
    [job] = read('.github/workflows/check.yml')['jobs'].values()
    steps = [step for step in job['steps'] if 'run' in step]
    assert [step['run'] for step in steps] == ['.ci/run'] and steps[0]['env'] == {'CI': 1}  # a skip fails


def test_templates_ask_for_what_a_fault_is_found_by():
    asked = {}
    for path in (ROOT / '.github' / 'ISSUE_TEMPLATE').glob('*.yml'):
        if path.stem != 'config':
            template = yaml.safe_load(path.read_text())
            assert template['name'] and template['description']
            asked[path.stem] = {field['id'] for field in template['body']}
    assert {'command', 'happened', 'machine'} <= asked['bug'] and {'source', 'figures'} <= asked['claim']


def test_the_citation_is_of_this_version_and_names_the_papers():
    citation = read('CITATION.cff')
    [call] = [node for node in ast.walk(ast.parse((ROOT / 'setup.py').read_text()))
              if isinstance(node, ast.Call) and ast.unparse(node.func) == 'setuptools.setup']
    package = {word.arg: word.value for word in call.keywords}
    assert (citation['version'], citation['license']) == (package['version'].value, package['license'].value)
    rows = [line for line in (ROOT / 'THIRD_PARTY.md').read_text().splitlines() if '`keras_models/' in line]
    assert len(citation['references']) == 6
    for paper in citation['references']:
        author, title = paper['authors'][0]['family-names'], paper['title'].split(':')[0]
        assert any(author in row and title in row for row in rows), title


def test_contributing_names_every_room():
    text = (ROOT / 'CONTRIBUTING.md').read_text()
    table = text[text.index('| subpackage |'):].split('\n\n')[0]
    named, above = set(), ''
    for cell in re.findall(r'^\| (`.*?) \|', table, re.M):
        for name in re.findall(r'`([\w/]+)`', cell):
            above = name.split('/')[0] if '/' in name else above
            named.add(name if '/' in name else f'{above}/{name}')
    rooms = {str(path.parent.relative_to(ROOT)) for package in ('data_prep', 'keras_models', 'pipelines')
             for path in (ROOT / package).glob('*/__init__.py')}
    assert named == rooms
