"""A pytest plugin: the files that take longest are run first, so that no core idles while the last of them ends."""

# By the table that ends a run (support/cost.py); a file that is missing here only starts later.
LONGEST_FIRST = (
    'test_viton_training', 'test_trainer', 'test_pipeline', 'test_beam_promises', 'test_image_pipeline',
    'test_tryon_pipeline', 'test_xla_clusters', 'test_imagenet', 'test_parsing', 'test_multi_worker', 'test_educate',
    'test_viton_alias', 'test_start', 'test_ctranslate2', 'test_classification', 'test_resume', 'test_viton_try_on',
    'test_reproduce', 'test_import_weights', 'test_localisation', 'test_readme')


def pytest_addoption(parser) -> None:
    parser.addoption('--reverse-files', action='store_true', help='run the files in reverse order: none depends on it')


def pytest_collection_modifyitems(items, config) -> None:
    rank = {name: number for number, name in enumerate(LONGEST_FIRST)}
    items.sort(key=lambda item: rank.get(item.path.stem, len(rank)))  # stable: tests of a file stay in order
    if config.getoption('--reverse-files'):
        last_first = {path: number for number, path in enumerate(reversed(dict.fromkeys(item.path for item in items)))}
        items.sort(key=lambda item: last_first[item.path])
