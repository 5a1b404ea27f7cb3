"""A pytest plugin that runs the slowest files first, so that no core idles at the end."""

# By the table that ends a run (support/cost.py); a file that is missing here only starts later.
LONGEST_FIRST = (
    'test_pipeline', 'test_tryon_pipeline', 'test_classification', 'test_educate', 'test_viton_try_on',
    'test_viton_training', 'test_tryon', 'test_imagenet', 'test_localisation', 'test_ctranslate2',
    'test_beam_promises', 'test_reproduce', 'test_trainer', 'test_judge', 'test_text_formats', 'test_parsing',
    'test_formats', 'test_decoding', 'test_image_input', 'test_resume', 'test_learning_machine', 'test_viton_alias',
    'test_transformer', 'test_lessons', 'test_image_pipeline', 'test_treebank', 'test_rematerialisation',
    'test_multi_worker', 'test_lineage', 'test_transformer_files', 'test_dataflow', 'test_readme',
    'test_serving_kit', 'test_games', 'test_person', 'test_compiled_steps', 'test_alexnet', 'test_initializers',
    'test_image_files', 'test_adding_a_paper')


def pytest_addoption(parser) -> None:
    parser.addoption('--reverse-files', action='store_true', help='run the files in reverse order: none depends on it')


def pytest_collection_modifyitems(items, config) -> None:
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))  # stable: tests of a file stay in order
    if config.getoption('--reverse-files'):
        last_first = {path: number for number, path in enumerate(reversed(dict.fromkeys(item.path for item in items)))}
        items.sort(key=lambda item: last_first[item.path])
