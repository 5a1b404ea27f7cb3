"""Progress of a training run: a bar on a terminal, plain lines elsewhere."""
import sys
import time

import tensorflow as tf
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar


class Progress:
    """Shows a training run's step, loss, rate and time left.

    Args:
      step: the global step.
      steps: total steps.
      unit: of the rate, such as tokens or images.
      stage: name printed before each line.
      shown: prefix of the metrics to print.

    Attributes:
      validation: the newest validation's metrics.
    """

    def __init__(self, step: tf.Variable, steps: int, unit: str, stage: str = 'train', shown: str = 'loss'):
        self.step, self.steps, self.unit, self._stage, self._shown = step, steps, unit, stage, shown
        self._first, self._started = int(step.numpy()), time.monotonic()
        self._validation = ''
        self.validation: dict[str, float] = {}
        self._out = sys.stdout  # Orbit's own output is captured during training; this is not
        console = Console(file=self._out)
        self._bar = Bar(TextColumn(stage), BarColumn(), TextColumn('{task.completed:,.0f}/{task.total:,.0f}'),
                        TextColumn('{task.description}'), TimeRemainingColumn(),
                        console=console) if console.is_terminal else None

    def __enter__(self):
        if self._bar:
            self._bar.start()
            self._task = self._bar.add_task('', total=self.steps, completed=self._first)
        return self

    def __exit__(self, *_):
        if self._bar:
            self._bar.stop()

    def train_action(self, output: dict) -> None:
        """Show the means of one training loop; an `orbit.Action`."""
        done = int(self.step.numpy())
        losses = ', '.join(f'{name} {float(value):.4f}' for name, value in output.items()
                           if name.startswith(self._shown))
        text = f'{losses}, {output[f"{self.unit}_per_second"]:,.0f} {self.unit}/s{self._validation}'
        self._validation = ''
        if self._bar:
            self._bar.update(self._task, completed=done, description=text)
        else:
            left = (time.monotonic() - self._started) / max(1, done - self._first) * (self.steps - done)
            print(f'{self._stage}: step {done:,}/{self.steps:,}, {text}, {int(left // 60)}:{int(left % 60):02d} left',
                  file=self._out, flush=True)

    def eval_action(self, output: dict) -> None:
        self.validation = dict(output)
        self._validation = ''.join(f', {name} {float(value):.4f}' for name, value in [*output.items()][:3])
