"""Landmark: the papers that made deep learning, as production TensorFlow pipelines.

The core requirement is what Beam workers need; training, the gate and serving are the extra `train`. `gpu` adds
NVIDIA's libraries, `ctranslate2` and `onnx` what `export --to` needs for these formats, `kubeflow` what `run --compile`
and its steps need, and `photos` what `photos --parser` needs; `browser`, beside `test`, drives the page of
`pipelines.serve`; `bench` are the peers of `make bench`.
"""
import sys

import setuptools

if sys.version_info[:2] != (3, 11):
    sys.exit('Landmark needs Python 3.11, the last one TensorFlow 2.15 supports; this is '
             f'{sys.version_info.major}.{sys.version_info.minor}.')

CORE = [
    'apache-beam[gcp]>=2.72,<3',
    'babel>=2.14',
    'google-crc32c>=1.5',
    'numpy>=1.26,<2',
    'opencv-python-headless>=4.8,<5',  # draws people, segments garments, turns images
    'scipy>=1.11,<2',  # ILSVRC's meta.mat, products of sparse matrices
    'sentencepiece>=0.2,<0.3',
    'setuptools<81',  # tensorflow-text and tfx-bsl still import pkg_resources
    'tensorflow>=2.15.1,<2.16',
    'tensorflow-data-validation>=1.15.1,<1.16',
    'tensorflow-text>=2.15,<2.16',  # word pieces
]
TRAIN = [
    'aiohttp>=3.10,<4',  # the server of pushed models
    'grpcio>=1.60,<2',
    'h5py>=3',  # weight files of Keras Applications
    'jinja2>=3.1',
    'keras>=2.15,<2.16',
    'matplotlib>=3.8',
    'ml-metadata>=1.17,<1.18',
    'pillow>=10',  # boxes cut out of pictures, the orientation of photographs
    'pooch>=1.8,<2',  # downloads
    'pyyaml>=6',
    'requests>=2.31',
    'rich>=13',
    'sacrebleu>=2.4,<3',
    'sacremoses>=0.1,<1',
    'scikit-learn>=1.3,<2',  # the digits of demo_images, support vector machines
    'tensorboard>=2.15,<2.16',
    'tensorflow-addons>=0.23,<0.24',
    'tensorflow-model-analysis>=0.46,<0.47',
    'tensorflow-serving-api>=2.15,<2.16',
    'tf-models-official>=2.15,<2.16',
    'typeguard>=2.7,<3',
]
BROWSER = ['playwright>=1.45,<2']  # drives the page in a real browser
CTRANSLATE2 = ['ctranslate2>=4.8,<5']
ONNX = ['onnx>=1.18,<1.19',  # 1.19 needs a newer ml_dtypes than TensorFlow 2.15
        'onnxruntime>=1.20,<2', 'tf2onnx>=1.17,<2']
KUBEFLOW = ['kfp==2.13.0']  # the last with protobuf < 5
PHOTOS = ['onnxruntime>=1.20,<2']  # runs a human parser
GPU = ['tensorflow[and-cuda]==2.15.1']
BENCH = ['ctranslate2>=4.8,<5', 'keras>=2.15,<2.16', 'torch==2.13.0', 'transformers>=4.40,<5']
TEST = ['codespell>=2.4,<3', 'hypothesis>=6.100', 'import-linter>=2.10,<3', 'ipykernel', 'mypy>=1.11', 'nbclient>=0.10',
        'pytest>=8.4', 'pytest-xdist>=3.6', 'ruff>=0.6', 'types-PyYAML']

setuptools.setup(
    name='landmark',
    version='0.1.0',
    description=__doc__.splitlines()[0],
    license='Apache-2.0',
    python_requires='>=3.11,<3.12',
    packages=['configs', *setuptools.find_packages(include=['data_prep', 'data_prep.*', 'keras_models',
                                                            'keras_models.*', 'pipelines', 'pipelines.*'])],
    package_data={'configs': ['*/*.yaml', 'schema.json', 'reproduce/*/*.yaml'],
                  'pipelines': ['fetching/*.yaml', 'starting/*.yaml', 'reporting/templates/*', 'serving/kit/*',
                                'serving/page/*/*']},
    entry_points={'console_scripts': ['landmark = pipelines.__main__:main']},
    install_requires=CORE,
    extras_require={'train': TRAIN, 'gpu': TRAIN + GPU, 'browser': BROWSER,
                    'ctranslate2': CTRANSLATE2, 'onnx': TRAIN + ONNX, 'kubeflow': TRAIN + KUBEFLOW,
                    'photos': TRAIN + PHOTOS, 'bench': BENCH,
                    'test': TRAIN + CTRANSLATE2 + ONNX + KUBEFLOW + PHOTOS + TEST},
)
