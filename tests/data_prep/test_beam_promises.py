"""Guarantees of prep jobs for any data: equal bytes, consistent counts, located dead letters, no partial data sets."""
import collections
import functools
import gzip
import hashlib
import json
import os
import pathlib
import shutil

import apache_beam as beam
import numpy as np
import pytest

from data_prep import UserError
from data_prep.core import archives, job, records, threads
from data_prep.image import job as image_job
from data_prep.people import job as people_job
from data_prep.text import job as text_job
from pipelines import run, train
from pipelines.core import artifacts, config, roles
from pipelines.core.pipeline import Pipeline
from pipelines.training import devices, loop, trainer
from support import raw_kinds
from support.commands import command

JOBS = {'text': text_job, 'images': image_job, 'try-on': people_job}
every_kind = pytest.mark.parametrize('kind', JOBS)


def prepare(file, folder, *argv, overrides=()):
    resolved = config.load(file, overrides)
    os.makedirs(folder)
    return roles.job(resolved.data_spec).run(resolved.data, str(folder), list(argv))


@pytest.fixture(scope='module')
def files(tmp_path_factory):
    """Kind -> a configuration, beside raw files."""
    return {kind: raw_kinds.write(kind, tmp_path_factory.mktemp('raw') / kind) for kind in JOBS}


@pytest.fixture(scope='module')
def finished(files, tmp_path_factory):
    """Kind -> its data set. It has as many dead letters as it may."""
    folders = {kind: tmp_path_factory.mktemp('finished') / kind for kind in JOBS}
    for kind, folder in folders.items():
        prepare(files[kind], folder)
    return folders


def digests(folder):
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(pathlib.Path(folder).rglob('*')) if path.is_file()}


@every_kind
def test_the_same_bytes_whatever_arrives_first(files, finished, kind, tmp_path, monkeypatch):
    """Shards get everything in the opposite order, on a machine that takes one picture at a time."""
    process = JOBS[kind]._WriteShard.process

    @functools.wraps(process)
    def reversed_process(self, element, *rest):
        return process(self, (element[0], [*element[1]][::-1]), *rest)
    monkeypatch.setattr(JOBS[kind]._WriteShard, 'process', reversed_process)
    monkeypatch.setattr(threads, 'MAX_WAITING', 1)
    prepare(files[kind], tmp_path / 'again')
    assert digests(tmp_path / 'again') == digests(finished[kind])


class _Job(beam.PTransform):
    """A job as a part of another."""

    def __init__(self, file, folder):
        super().__init__()
        self._file, self._folder = file, str(folder)

    def expand(self, begin):
        resolved = config.load(self._file)
        roles.job(resolved.data_spec).build(begin, resolved.data, self._folder)
        return beam.pvalue.PDone(begin.pipeline)


@pytest.mark.parametrize('mode, workers', [
    ('multi_threading', 3), pytest.param('multi_processing', 2, marks=pytest.mark.slow)])  # workers import for 12 s
def test_the_same_bytes_from_many_workers(files, finished, mode, workers, tmp_path):
    options = beam.options.pipeline_options.PipelineOptions([f'--direct_running_mode={mode}',
                                                             f'--direct_num_workers={workers}'])
    with beam.Pipeline(options=options) as pipeline:  # one, since workers take seconds to start
        for kind, file in files.items():
            (tmp_path / kind).mkdir()
            pipeline | kind >> _Job(file, tmp_path / kind)
    for kind in files:
        job.finish(str(tmp_path / kind))
        assert digests(tmp_path / kind) == digests(finished[kind])


@every_kind
def test_read_is_written_and_filtered_and_dead(finished, kind):
    manifest, total = records.read_manifest(str(finished[kind])), collections.Counter()
    for split, counts in manifest.counts.items():
        left_out = sum(value for name, value in counts.items() if name.startswith(('filtered', 'dead')))
        assert counts['read'] == counts['written'] + left_out
        assert counts['written'] == len(records.open_split(str(finished[kind]), split))
        total.update(counts)
    assert total['read'] == raw_kinds.READ[kind]
    assert {name: value for name, value in total.items() if name.startswith(('filtered', 'dead')) and value
            } == raw_kinds.LEFT_OUT[kind]


@every_kind
def test_every_dead_letter_says_where_and_why(files, finished, kind):
    """A file, of one in an archive the archive and its name there; a line or an offset, at which the trouble is."""
    found = sorted((json.loads(line) for path in (finished[kind] / 'dead_letters').iterdir() for line in open(path)),
                   key=lambda letter: letter['file'])
    assert len(found) == len(raw_kinds.LETTERS[kind])
    for letter, (file, line, begins, reason) in zip(found, raw_kinds.LETTERS[kind]):
        assert os.path.relpath(letter['file'], os.path.dirname(files[kind])) == file
        assert letter['reason'].startswith(reason) and letter.get('line') == line
        if begins is not None:
            content = pathlib.Path(archives.split(letter['file'])[0]).read_bytes()
            content = gzip.decompress(content) if '.tgz' in file else content
            rest = content[letter['offset']:] if 'offset' in letter else b''.join(
                content.splitlines(keepends=True)[line - 1:])
            assert rest.startswith(begins)
    number = sum(counts['dead_letters'] + counts.get('unread_boxes', 0)
                 for counts in records.read_manifest(str(finished[kind])).counts.values())
    assert len(found) == number


@every_kind
def test_one_dead_letter_too_many_stops_the_run_before_training(files, kind, tmp_path, capsys):
    """Of the same files, which the limit that is exactly met let through."""
    limit = np.nextafter(raw_kinds.DEAD[kind], 0)
    with pytest.raises(SystemExit) as left:
        run.main(['--config', files[kind], '--pipeline_root', str(tmp_path), '--set', f'data.max_dead_letters={limit}'])
    assert left.value.code == 2
    [sentence] = capsys.readouterr().err.splitlines()
    number = raw_kinds.LEFT_OUT[kind]['dead_letters']
    assert sentence.startswith(f'error: {number} of the ') and 'more than data.max_dead_letters' in sentence
    assert not (tmp_path / 'train').exists() and not list(tmp_path.rglob(records.MANIFEST))


def test_a_fraction_that_is_met_is_not_passed():
    """As numbers in a computer, too: 0.29 * 100 is less than 29."""
    assert [job.too_many({'read': read, 'dead_letters': 29}, 0.29) for read in (99, 100)] == [True, False]
    assert not job.too_many({'read': 0, 'dead_letters': 0}, 0)


@pytest.mark.parametrize('counts', [{'read': 3, 'written': 2, 'dead_letters': 0}, {'read': 3, 'written': 3},
                                    {'read': 3, 'written': 1, 'filtered_long': 1}])
def test_what_does_not_add_up_is_not_committed(tmp_path, counts):
    shards = []
    for split, number in (('train', 2), ('test', 3)):
        writer = records.ShardWriter(str(tmp_path / f'Split-{split}' / 'part-0.tfrecord'))
        for _ in range(number):
            writer.write(b'record')
        shards.append(writer.close())
    with pytest.raises(RuntimeError, match='the counts of train do not add up: its shards hold 2'):
        job.commit(str(tmp_path), shards, (), {'train': {'dead_letters': 0, **counts}}, {})
    whole = {'read': 5, 'written': 2, 'filtered_long': 2, 'dead_letters': 1}
    job.commit(str(tmp_path), shards, (), {'train': whole}, {})
    assert records.read_manifest(str(tmp_path)).splits['train'] == shards[:1]


MOMENTS = {'text': ['40', 'manifest', 'data'], 'images': ['50', 'data'], 'try-on': ['4', 'manifest']}


def test_a_job_killed_anywhere_leaves_nothing_to_train_on_and_then_finishes(files, finished, tmp_path):
    """SIGKILL at one moment after another, each on what the one before left. With its manifest a data set is whole."""
    jobs = [f'{files[kind]}={",".join(moments)}' for kind, moments in MOMENTS.items()]
    done = command('support.killed_jobs', str(tmp_path), *jobs)
    assert done.returncode == 0, done.stderr
    for kind, moments in MOMENTS.items():
        looks = json.loads(done.stdout)[files[kind]]
        assert all('has no finished prepare' in said for said, _ in looks)
        written = sum(counts['written'] for counts in records.read_manifest(str(finished[kind])).counts.values())
        assert [count for _, count in looks] == [written * (moment == 'data') for moment in moments]
        [made] = (tmp_path / kind).glob('prepare/*/examples')
        assert digests(finished[kind]).items() <= digests(made).items()  # to which the stage adds a list of raw files


@pytest.fixture(scope='module')
def trainers(files, finished, tmp_path_factory):
    """(kind) -> a trainer and the folder it reads, both as new."""
    made = {}

    def make(kind):
        folder = tmp_path_factory.getbasetemp() / 'damaged' / kind
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(finished[kind], folder)
        if kind not in made:
            resolved = config.load(files[kind], ['model.trainable_networks=[segmentation]'] if kind == 'try-on' else [])
            resolved = config.with_data_set(resolved, records.read_manifest(str(folder)).model)
            made[kind] = trainer.Trainer(resolved, devices.choose(resolved, False), str(folder))
        return made[kind], folder
    return make


def alter_records(folder):
    """One bit of every training record."""
    for shard in (folder / 'Split-train').glob('*.tfrecord'):
        data = bytearray(shard.read_bytes())
        for row in np.load(records.index_path(str(shard))):
            data[int(row['offset']) + 12 + int(row['length']) // 2] ^= 1
        shard.write_bytes(bytes(data))


def change(path, how):
    def changed(folder):
        file = folder / path
        data = file.read_bytes()
        file.unlink()
        if how(data) is not None:
            file.write_bytes(how(data))
    return changed


def flipped(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def gone(data):
    del data


FIRST = {'text': 'Split-train/part-000-00000', 'images': 'Split-train/part-00000', 'try-on': 'Split-train/part-00000'}
DAMAGE = [(kind, what, *rest) for kind, first in FIRST.items() for what, *rest in (
    ('no manifest', change('manifest.json', gone), 'has no manifest.json'),
    ('half a manifest', change('manifest.json', lambda data: data[:len(data) // 2]), 'manifest.json is damaged'),
    ('no shard', change(f'{first}.tfrecord', gone), 'tfrecord is missing although the manifest lists it'),
    ('a shard cut', change(f'{first}.tfrecord', lambda data: data[:-1]), r'tfrecord has [\d,]+ bytes, but its'),
    ('records altered', alter_records, r'tfrecord, record \d+ at byte \d+: the bytes were changed after they were'),
    ('no index', change(f'{first}.index.npy', gone), 'index.npy is missing although the manifest lists it'),
    ('an index altered', change(f'{first}.index.npy', flipped), 'index.npy was changed'))]
DAMAGE += [
    ('text', 'other subwords', change('subwords.model', flipped), 'subwords.model is not the tokenizer this data set'),
    ('text', 'no subwords', change('subwords.model', gone), 'subwords.model is missing'),
    ('images', 'other pixels', change('pixels.npz', flipped), 'pixels.npz is missing or was changed')]


@pytest.mark.parametrize('kind, damage, message', [(kind, *rest) for kind, _, *rest in DAMAGE],
                         ids=[f'{kind}, {what}' for kind, what, *_ in DAMAGE])
def test_a_trainer_refuses_what_is_not_as_it_was_made(trainers, kind, damage, message):
    """All but altered records before the first step; those when they are first read."""
    it, folder = trainers(kind)
    damage(folder)
    with pytest.raises(UserError, match=message) as said, loop.errors_in_words(it.strategy):
        next(iter(it._dataset('train')))
    assert str(folder) in str(said.value) and '\n' not in str(said.value)


@every_kind
def test_a_trainer_takes_what_is_as_it_was_made(trainers, finished, kind):
    it, _ = trainers(kind)
    part = records.open_split(str(finished[kind]), 'train')
    ids = {int(number) for number in next(iter(it._dataset('train')))['id']} - {-1}  # of no record
    assert ids and ids <= set(range(len(part)))


def test_training_on_other_subwords_goes_on_from_nothing_done_on_these(files, finished, tmp_path):
    """The same records of words, cut otherwise: another piece of work, whose checkpoints are in another folder."""
    prepare(files['text'], tmp_path / 'other', overrides=['data.vocab_size=58'])
    pipeline = Pipeline(config.load(files['text']), str(tmp_path / 'root'), [])
    work = {pipeline._fingerprint(train.STAGE, {'examples': artifacts.Artifact(
        1, 'Examples', str(folder), artifacts.digest(str(folder)), {})}) for folder in (finished['text'],
                                                                                     tmp_path / 'other')}
    assert len(work) == 2
