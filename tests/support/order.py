"""A pytest plugin that runs the slowest files first, so that no core idles at the end."""

# By the table that ends a run (support/cost.py); a file that is missing here only starts later.
LONGEST_FIRST = (
    'test_pipeline', 'test_viton_training', 'test_tryon_pipeline', 'test_reproduce', 'test_trainer',
    'test_start', 'test_classification', 'test_imagenet', 'test_viton_try_on', 'test_educate', 'test_parsing',
    'test_image_pipeline', 'test_localisation', 'test_tryon', 'test_beam_promises', 'test_ctranslate2',
    'test_text_formats', 'test_decoding', 'test_multi_worker', 'test_rematerialisation', 'test_viton_alias',
    'test_judge', 'test_treebank', 'test_image_input', 'test_lessons', 'test_transformer_files',
    'test_transformer', 'test_resume', 'test_viton_adversary', 'test_dataflow', 'test_lineage', 'test_alexnet')


def pytest_addoption(parser) -> None:
    parser.addoption('--reverse-files', action='store_true', help='run the files in reverse order: none depends on it')


def pytest_collection_modifyitems(items, config) -> None:
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))  # stable: tests of a file stay in order
    if config.getoption('--reverse-files'):
        last_first = {path: number for number, path in enumerate(reversed(dict.fromkeys(item.path for item in items)))}
        items.sort(key=lambda item: last_first[item.path])
