"""The sections of a configuration that belong to stages, whatever the model and the data."""
import dataclasses
import os
from typing import Any, Literal


@dataclasses.dataclass
class TrainConfig:
    """Settings of training.

    `jit: auto` compiles with XLA on GPU and TPU, and on a CPU where that was measured to be faster
    (`pipelines/training/jit.py`). `precision: bfloat16` computes layers in bfloat16 and keeps weights, losses and
    updates in float32; `float16`, with loss scaling, is for GPUs without bfloat16. `gradient_accumulation_steps` splits
    a batch into that many parts and applies their summed gradients once: the same update in less memory, except that
    batch normalisation sees one part at a time. `rematerialise` also saves memory for the same update: it recomputes
    most of the forward pass during the backward pass. `dense_layers: one_device` keeps the dense layers of an image
    network on the first of several devices (`pipelines/training/hybrid_parallel.py`). `init_from` names weights to
    start from: a checkpoint, a ModelRun, an exported model or the folder of its pushed versions; from a list, each
    provides the networks it holds.
    """
    steps: int = 100000  # weight updates; 0 exports the weights of `init_from` unchanged
    init_from: str | list[str] = ''
    # how replicas are distributed; the flag --strategy sets it
    strategy: Literal['one_device', 'mirrored', 'multi_worker_mirrored', 'tpu'] = 'one_device'
    tpu: str = ''  # address of the TPU; local on a TPU VM
    jit: bool | Literal['auto'] = 'auto'
    precision: Literal['float32', 'bfloat16', 'float16'] = 'float32'
    gradient_accumulation_steps: int = 1
    rematerialise: bool = False
    dense_layers: Literal['every_device', 'one_device'] = 'every_device'
    log_every: int = 50  # steps between printed losses
    checkpoint_every: int = 1000  # steps between checkpoints
    validate_every: int = 1000  # steps between validations
    # first phases, such as {steps: 500, rows: 8, size: [96, 64], networks: [alias]}, {steps: 500, crop: 24,
    # scales: [27, 30]} or {steps: 500, swapped: 0.5}; keys left out stay as configured
    curriculum: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    # metric whose best checkpoint is exported: of the validation losses, such as top1_error, or for text of the gate,
    # such as bleu, for which validation decodes; empty: the last checkpoints
    monitor: str = ''
    monitor_mode: Literal['min', 'max'] = 'min'  # whether the best value is the lowest or the highest
    monitor_examples: int = 500  # most validation examples to decode, if `monitor` needs it
    patience: int = 0  # validations of the last phase without a better value after which training ends; 0: none
    ema: float = 0.0  # momentum of a moving average of the weights to validate and export, such as 0.999; 0: none
    keep_checkpoints: int = 5  # newest checkpoints kept on disk
    average_checkpoints: int = 5  # newest checkpoints averaged for export; 1 exports the last


@dataclasses.dataclass
class ExportConfig:
    """Settings of the export; an unmodified TensorFlow Serving can only load `jit: false`."""
    jit: bool = False
    warmup_requests: int = 4  # validation examples a server runs before it accepts requests
    calibration_examples: int = 200  # training examples from which a format of 8-bit integers chooses its ranges


@dataclasses.dataclass
class EvaluateConfig:
    """Thresholds by metric: `min`/`max` bound the value, `max_drop`/`max_rise` the change from the blessed model.

    With `confidence`, a paired bootstrap decides on the change: a model passes only if it is that sure that the bound
    holds; with `in_doubt: pass`, unless it is that sure that it does not. No threshold at all means no blessing.
    `drift` bounds, by the same keys, what a model may lose in another format (`export --to`), against the SavedModel.
    `networks`: paths of published weights that metrics need, by network name; a metric without its network is left out.
    """
    split: str = 'test'  # split the gate evaluates
    batch_size: int = 64  # examples per prediction batch
    slices: list[str] = dataclasses.field(default_factory=list)  # features to slice metrics by, such as kind
    networks: dict[str, str] = dataclasses.field(default_factory=dict)
    # conditions of a blessing, such as {bleu: {min: 20, max_drop: 0.5, confidence: 0.95}}
    thresholds: dict[str, dict[str, float | Literal['block', 'pass']]] = dataclasses.field(default_factory=dict)
    # conditions of handing over another format, such as {bleu: {max_drop: 0.5}}
    drift: dict[str, dict[str, float | Literal['block', 'pass']]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class LearningCurveConfig:
    """Settings of `learning_curve`."""
    halvings: int = 2  # trainings on a half of the training examples, on a quarter, and so on


@dataclasses.dataclass
class InfraValidateConfig:
    """Time limit for a fresh process that loads the model and answers its warm-up requests."""
    max_seconds: int = 120  # to load the model and answer in a fresh process


@dataclasses.dataclass
class PushConfig:
    """`destination` is the folder that serving watches; if empty, `serving/<name>` in the pipeline root."""
    destination: str = ''

    def folder(self, root: str, name: str) -> str:
        """Return the folder that serving watches, for a pipeline root and a configuration's name."""
        return self.destination.rstrip('/') or os.path.join(root, 'serving', name)


@dataclasses.dataclass
class CanaryConfig:
    """Bound what `push --promote` allows a canary, beside the changes that `evaluate.thresholds` allows."""
    max_slowdown: float = 1.25  # its median latency, divided by that of the served version
    requests: int = 200  # requests replayed for the latency


@dataclasses.dataclass
class ClusterConfig:
    """Settings of containers: the steps of `run --compile`, and the workers of `train --manifest`."""
    retries: int = 3  # times a failed container is started again; it resumes
    cpu: int | str = ''  # limit of each container, such as 4 or 500m; empty: the cluster's
    memory: str = ''  # limit of each container, such as 16Gi; empty: the cluster's
    accelerator: str = ''  # for training: nvidia.com/gpu, or on Vertex AI for example NVIDIA_TESLA_T4
    accelerators: int = 1  # their number in each container that trains
    grace_seconds: int = 120  # a preempted worker's time to save, between SIGTERM and SIGKILL


SECTIONS: dict[str, type] = {'train': TrainConfig, 'export': ExportConfig, 'evaluate': EvaluateConfig,
                             'learning_curve': LearningCurveConfig, 'infra_validate': InfraValidateConfig,
                             'push': PushConfig, 'canary': CanaryConfig, 'cluster': ClusterConfig}
