"""List the commands, or run one: `landmark run` is `python -m pipelines.run`.

python -m pipelines
landmark predict --help
"""
import ast
import importlib
import pathlib
import re
import shutil
import sys
import textwrap

import pipelines

# In the order a newcomer needs them; the others follow by name.
FIRST = ('init', 'fetch', 'photos', 'run', 'prepare', 'train', 'educate', 'export', 'evaluate', 'infra_validate',
         'push', 'predict', 'serve')


def commands() -> dict[str, str]:
    """Return the first clause of each command's docstring by its name, without importing them."""
    found = {}
    for path in sorted(pathlib.Path(pipelines.__file__).parent.glob('[!_]*.py')):
        text = path.read_text(encoding='utf-8')
        if "if __name__ == '__main__':" in text:
            paragraph = (ast.get_docstring(ast.parse(text)) or '').split('\n\n')[0]
            found[path.stem] = re.split(r'[.:;](?: |$)', ' '.join(paragraph.split()))[0] + '.'
    return dict(sorted(found.items(), key=lambda each: FIRST.index(each[0]) if each[0] in FIRST else len(FIRST)))


def main(argv: list[str] | None = None) -> None:
    """Run `COMMAND ARGUMENT…`; without a known command, list all."""
    words, known = sys.argv[1:] if argv is None else argv, commands()
    if words and words[0] in known:
        importlib.import_module(f'pipelines.{words[0]}').main(words[1:])
        return
    width = shutil.get_terminal_size((100, 24)).columns
    print('Commands, each `python -m pipelines.NAME` or `landmark NAME`; --help describes one:\n')
    for name, sentence in known.items():
        print(textwrap.fill(f'  {name:16} {sentence}', width, subsequent_indent=' ' * 19))
    if words and words[0] not in ('-h', '--help'):
        sys.exit(f'error: there is no command {words[0]}. Choose one of the list above.')


if __name__ == '__main__':
    main()
