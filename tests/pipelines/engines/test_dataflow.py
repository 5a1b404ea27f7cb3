"""Dataflow without Google: refusals, and the job file a dry run writes without network access."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile

import apache_beam as beam
import pytest
from apache_beam.internal import pickler
from apache_beam.portability import common_urns
from apache_beam.portability.api import beam_runner_api_pb2

from data_prep import UserError, wmt
from data_prep.core import records
from data_prep.text import job as text_job
from pipelines.engines import beam_flags, dataflow
from support.commands import ROOT, command

GOOD = {'runner': 'DataflowRunner', 'project': 'my-project', 'region': 'us-central1', 'temp_location': 'gs://bucket/tmp'}
CLOUD_FILES = {'train': ['train.en.gz', 'train.de.gz'], 'validation': ['dev.tsv'], 'test': ['test.en', 'test.de']}
IMAGE = 'us-central1-docker.pkg.dev/my-project/images/landmark-worker:1'

KNOWN = ('config', 'set', 'pipeline_root', 'explain', 'dry_run')  # flags of the command


def flags(**changes) -> list[str]:
    return [f'--{name}={value}' for name, value in {**GOOD, **changes}.items() if value is not None]


@pytest.mark.parametrize('changes, said', [
    ({'project': None}, '--project is missing'),
    ({'project': '123456789012'}, '--project 123456789012 is a project number'),
    ({'project': 'My Project'}, "--project 'My Project' is not a project id"),
    ({'project': 'short'}, "--project 'short' is not a project id"),
    ({'region': None}, '--region is missing'),
    ({'region': 'us-central1-a'}, '--region us-central1-a is a zone; give its region, us-central1'),
    ({'region': 'us-west-2'}, "--region 'us-west-2' is not the name of a region"),
    ({'temp_location': None}, '--temp_location is missing'),
    ({'temp_location': '/tmp/x'}, "--temp_location '/tmp/x' must be gs://BUCKET/FOLDER"),
    ({'temp_location': 'gs://bucket'}, "--temp_location 'gs://bucket' must be gs://BUCKET/FOLDER"),
    ({'temp_location': 'gs://My_Bucket/tmp'}, "'My_Bucket' is not a valid bucket name"),
    ({'temp_location': 'gs://10.0.0.1/tmp'}, "'10.0.0.1' is not a valid bucket name"),
    ({'staging_location': 's3://bucket/tmp'}, "--staging_location 's3://bucket/tmp' must be gs://BUCKET/FOLDER"),
    ({'staging_location': 'gs://bucket/a@2'}, 'no digit or asterisk may follow an @'),
    ({'setup_file': 'nowhere/setup.py'}, '--setup_file: there is no file nowhere/setup.py'),
    ({'setup_file': 'README.md'}, "--setup_file 'README.md' must be a file named setup.py"),
    ({'sdk_container_image': 'https://x/y'}, "--sdk_container_image 'https://x/y' is not the name of an image"),
    ({'job_name': 'My Job'}, "--job_name 'My Job' must be lower-case"),
    ({'template_location': 'gs://bucket/t'}, '--template_location only saves the job without running it'),
    ({'num_workers': 'many'}, "--num_workers: invalid int value: 'many'"),
    ({'project': None, 'projct': 'my-project'}, '--projct is a flag of neither this command nor Beam; did you mean '
                                                '--project?; --project is missing'),
])
def test_what_dataflow_could_not_take_is_refused_by_name(changes, said):
    with pytest.raises(UserError, match=re.escape(said)):
        beam_flags.check(flags(**changes), None, KNOWN)


def test_everything_that_stands_against_a_job_is_said_at_once():
    with pytest.raises(UserError) as refused:
        beam_flags.check(['--runner', 'dataflow', '--regoin', 'us-central1'], 'runs/here', KNOWN)
    for said in ('--regoin is a flag of neither', 'did you mean --region?', '--project is missing',
                 '--region is missing', '--temp_location is missing',
                 "--pipeline_root 'runs/here' must be gs://BUCKET/FOLDER, since workers"):
        assert said in str(refused.value)


@pytest.mark.parametrize('changes', [
    {}, {'project': 'example.com:my-project'}, {'region': 'northamerica-northeast1'}, {'region': 'europe-west12'},
    {'region': 'me-central2'}, {'staging_location': 'gs://a.bucket.example.org/x/y'}, {'temp_location': 'gs://a_b-1/'},
    {'sdk_container_image': IMAGE}, {'sdk_container_image': 'localhost:5000/x@sha256:' + '0' * 64},
    {'job_name': 'prepare-1', 'num_workers': 2}, {'runner': 'dataflow'},
    {'runner': 'apache_beam.runners.dataflow.DataflowRunner'}])
def test_names_google_documents_as_possible_pass(changes):
    assert beam_flags.check(flags(**changes), 'gs://bucket/runs', KNOWN)[:len(flags(**changes))] == flags(**changes)


def test_flags_are_completed():
    """The package comes from this checkout, nothing of `__main__` is pickled, and `--setup_file setup.py` works."""
    assert beam_flags.check(flags(), None, KNOWN)[-3:] == ['--no_save_main_session', '--setup_file',
                                                           str(ROOT / 'setup.py')]
    here = os.path.relpath(ROOT / 'setup.py')
    assert beam_flags.check(flags(setup_file=here), None, KNOWN)[-2:] == ['--setup_file', str(ROOT / 'setup.py')]
    assert beam_flags.check(flags(sdk_container_image=IMAGE), None, KNOWN)[-1] == '--no_save_main_session'


def test_an_installed_package_must_say_where_workers_get_it(tmp_path):
    for package in ('pipelines', 'pipelines/engines', 'data_prep'):  # as in site-packages: no setup.py above
        (tmp_path / package).mkdir()
        shutil.copy(ROOT / package / '__init__.py', tmp_path / package)
    for module in ('dataflow.py', 'google_names.py'):
        shutil.copy(ROOT / 'pipelines' / 'engines' / module, tmp_path / 'pipelines' / 'engines')
    done = subprocess.run([sys.executable, '-c', 'import sys; from pipelines.engines import dataflow; '
                           'print(dataflow.problems(dataflow.read(sys.argv[1:]), None))', *flags()],
                          cwd=tmp_path, env={'PYTHONPATH': str(tmp_path)}, capture_output=True, text=True)
    assert done.stdout == ("['--setup_file and --sdk_container_image are missing; give one, or workers lack this "
                           "package']\n"), done.stderr


@pytest.mark.parametrize('given, said', [
    (['--runner', 'DataflwRunner'], 'there is no --runner DataflwRunner; did you mean DataflowRunner?'),
    (['--runner', 'PortableRunner'], '--runner PortableRunner needs --job_endpoint HOST:PORT'),
    (['--runner', 'PortableRunner', '--job_endpoint', '127.0.0.1:9', '--environment_type', 'PROCESS'],
     'process_command is required for environment type PROCESS; --job_endpoint 127.0.0.1:9: no job service answers'),
    (['--direct_num_workers'], '--direct_num_workers: expected one argument'),
    (['--dry_run'], '--dry_run is only a flag of `python -m pipelines.prepare`'),
    (['foo'], "'foo' is not a flag; give a configuration as --config foo")])
def test_other_runners_are_checked_too(given, said):
    with pytest.raises(UserError, match=re.escape(said)):
        beam_flags.check(given, None, KNOWN)


def test_files_of_this_machine_are_refused():
    config = wmt.Config(train=['gs://b/a.en', 'a.de'], validation=['gs://b/v.tsv'], test=['/x/y.en', '/x/y.de'])
    with pytest.raises(UserError, match=re.escape("data.train 'a.de'; data.test '/x/y.en' and 1 more. Copy them")):
        dataflow.check_data(config, wmt.SPLITS)
    dataflow.check_data(wmt.Config(folder='gs://b', **CLOUD_FILES), wmt.SPLITS)


def test_a_refusal_is_one_sentence_before_tensorflow_is_imported():
    done = subprocess.run([sys.executable, '-X', 'importtime', '-m', 'pipelines.prepare', '--runner', 'DataflowRunner'],
                          env={**os.environ, 'PYTHONPATH': str(ROOT)}, capture_output=True, text=True)
    imports = [line.rsplit('|', 1)[-1].strip() for line in done.stderr.splitlines() if line.startswith('import time:')]
    rest = [line for line in done.stderr.splitlines() if not line.startswith('import time:')]
    assert done.returncode == 2 and not done.stdout
    assert len(rest) == 1 and rest[0].startswith('error: --project is missing')
    assert 'pipelines.engines.beam_flags' in imports
    assert not {'tensorflow', 'pipelines.core.config'} & {*imports}
    alone = command('pipelines.prepare', '--dry_run')
    assert alone.returncode == 2 and 'Give --runner DataflowRunner with it' in alone.stderr


def offline(folder: pathlib.Path, *args: str) -> subprocess.CompletedProcess:
    """`python -m pipelines.prepare …` in a network namespace that holds nothing, where the machine lets us make one."""
    alone = ['unshare', '--map-root-user', '--net']
    try:
        possible = subprocess.run([*alone, 'true'], capture_output=True).returncode == 0
    except OSError:
        possible = False
    folder.mkdir()
    return subprocess.run([*(alone if possible else []), sys.executable, '-m', 'pipelines.prepare', *args], cwd=folder,
                          env={**os.environ, 'PYTHONPATH': str(ROOT), 'GOOGLE_APPLICATION_CREDENTIALS': '/nowhere'},
                          capture_output=True, text=True, timeout=300)


@pytest.fixture(scope='module')
def dry(config_file, tmp_path_factory):
    """A dry run of a configuration in a bucket: its folder and what it printed."""
    folder = tmp_path_factory.mktemp('dry') / 'elsewhere'
    data = [f'--set=data.{split}=[{",".join(names)}]' for split, names in CLOUD_FILES.items()]
    done = offline(folder, '--config', config_file, *data, '--set', 'data.folder=gs://bucket/raw', '--pipeline_root',
                   'gs://bucket/root', *flags(machine_type='n2-highmem-4', num_workers=3), '--dry_run')
    assert done.returncode == 0, done.stderr
    return folder, done.stdout


def job_of(folder: pathlib.Path):
    """The job file, and the steps beside it."""
    job = json.loads((folder / 'job.json').read_text())
    return job, beam_runner_api_pb2.Pipeline.FromString((folder / 'pipeline.pb').read_bytes())


def test_a_dry_run_says_what_would_run_where_and_records_nothing(dry):
    folder, said = dry
    assert 'nothing was submitted' in said and 'my-project, us-central1' in said and 'gs://bucket/root' in said
    assert 'reading 5 files, not checked to exist' in said and 'prepare: started' not in said
    path = re.search(r'^prepare: job file: (.*)$', said, re.M)[1]
    assert (folder / path).is_file()
    made = {str(file.relative_to(folder)) for file in folder.rglob('*') if file.is_file()}
    assert made == {f'runs/tiny/dataflow/{name}' for name in (
        'job.json', 'pipeline.pb', 'workflow.tar.gz', 'submission_environment_dependencies.txt')}  # no metadata.sqlite


def test_the_job_file_is_dataflows(dry):
    job, steps = job_of(dry[0] / 'runs' / 'tiny' / 'dataflow')
    options = job['environment']['sdkPipelineOptions']['options']
    assert job['type'] == 'JOB_TYPE_BATCH' and job['name'] == options['job_name']
    assert {key: options[key] for key in ('project', 'region', 'setup_file', 'dry_run', 'no_auth', 'save_main_session')
            } == {'project': 'my-project', 'region': 'us-central1', 'setup_file': str(ROOT / 'setup.py'),
                  'dry_run': False, 'no_auth': False, 'save_main_session': False}
    assert options['pipelineUrl'].startswith('gs://bucket/tmp/') and options['pipelineUrl'].endswith('/pipeline.pb')
    [pool] = job['environment']['workerPools']
    assert pool['machineType'] == 'n2-highmem-4' and pool['numWorkers'] == 3
    assert 'workflow.tar.gz' in {package['name'] for package in pool['packages']}
    assert all(package['location'].startswith('storage.googleapis.com/bucket/tmp/') for package in pool['packages'])
    [environment] = {transform.environment_id for transform in steps.components.transforms.values()} - {''}
    image = beam_runner_api_pb2.DockerPayload.FromString(steps.components.environments[environment].payload)
    assert image.container_image == pool['workerHarnessContainerImage']
    assert image.container_image.endswith(f'beam_python3.11_sdk:{beam.__version__}')


def test_the_steps_are_those_prepare_runs_here(dry, raw):
    _, steps = job_of(dry[0] / 'runs' / 'tiny' / 'dataflow')
    here = beam.Pipeline()
    text_job.build(here, wmt.Config(folder=str(raw), **CLOUD_FILES), 'x')
    built = here.to_runner_api().components.transforms.values()
    assert steps_of(built) == steps_of(steps.components.transforms.values()) > {'Scan', 'Learn', 'Write', 'Commit'}
    [write] = [transform for transform in steps.components.transforms.values() if transform.unique_name == 'Write']
    assert write.spec.urn == common_urns.primitives.PAR_DO.urn
    do_fn = pickler.loads(beam_runner_api_pb2.ParDoPayload.FromString(write.spec.payload).do_fn.payload)[0]
    assert type(do_fn) is text_job._WriteShard  # by its name in the package, not by value
    assert do_fn.folder.startswith('gs://bucket/root/prepare/') and do_fn.config.folder == 'gs://bucket/raw'


def steps_of(transforms) -> set[str]:
    return {transform.unique_name for transform in transforms if transform.unique_name.isidentifier()}


def test_workers_install_the_code_that_is_here(dry):
    with tarfile.open(dry[0] / 'runs' / 'tiny' / 'dataflow' / 'workflow.tar.gz') as package:
        files = {name.split('/', 1)[1]: package.extractfile(name).read()
                 for name in package.getnames() if package.getmember(name).isfile()}
    for path in [ROOT / 'setup.py', *(ROOT / 'data_prep').rglob('*.py'), *(ROOT / 'configs').rglob('*.yaml')]:
        assert files[str(path.relative_to(ROOT))] == path.read_bytes()


def test_the_demo_with_an_image_and_a_file_of_its_own(tmp_path):
    """As typed on a fresh clone: the root is in the bucket of temporary files, and workers come from the image."""
    done = offline(tmp_path / 'elsewhere', *flags(sdk_container_image=IMAGE, dataflow_job_file='jobs/mine.json'),
                   '--dry_run=True')
    assert done.returncode == 0, done.stderr
    assert 'writing below gs://bucket/runs/demo_translation' in done.stdout and f'of image {IMAGE}' in done.stdout
    job = json.loads((tmp_path / 'elsewhere' / 'jobs' / 'mine.json').read_text())
    [pool] = job['environment']['workerPools']
    assert pool['workerHarnessContainerImage'] == IMAGE
    assert 'workflow.tar.gz' not in {package['name'] for package in pool['packages']}


def test_prepare_tells_its_rate(config_file, tmp_path):
    done = command('pipelines.prepare', '--config', config_file, '--pipeline_root', str(tmp_path / 'root'))
    last = done.stdout.splitlines()[-1]
    [manifest] = [records.read_manifest(str(path)) for path in tmp_path.glob('root/prepare/*/examples')]
    pairs, seconds, rate = re.fullmatch(
        r'prepare: ([\d,]+) \w+ in ([\d,]+) s with statistics, ([\d,]+) \w+/s\.', last).groups()
    assert int(pairs.replace(',', '')) == sum(counts['read'] for counts in manifest.counts.values())
    assert int(seconds) - 1 <= int(pairs.replace(',', '')) / int(rate.replace(',', '')) <= int(seconds) + 1


def test_the_workers_image_has_the_submitters_versions():
    """It cannot be built here: that needs a Docker engine."""
    text = (ROOT / 'pipelines' / 'engines' / 'worker.Dockerfile').read_text().replace('\\\n', ' ')
    locked = dict(re.findall(r'^([\w.-]+)==([\w.+!]+) ', (ROOT / 'requirements.lock').read_text(), re.M))
    python = f'{sys.version_info.major}.{sys.version_info.minor}'
    assert re.findall(r'^ARG BEAM_VERSION=(.*)$', text, re.M) == [locked['apache-beam']] == [beam.__version__]
    assert text.count(locked['apache-beam']) == 1
    assert re.findall(r'python:?(\d\.\d+)', text) == [python] * 3
    copied = [source for line in re.findall(r'^COPY (?!--from)(.*)$', text, re.M) for source in line.split()[:-1]]
    assert all((ROOT / source).exists() for source in copied)
    packages = {path.parent.name for path in ROOT.glob('*/__init__.py')} - {'tests'}
    assert packages | {'setup.py', 'requirements.lock'} <= set(copied)
    assert '--constraint versions.txt' in text and text.rstrip().endswith('ENTRYPOINT ["/opt/apache/beam/boot"]')
