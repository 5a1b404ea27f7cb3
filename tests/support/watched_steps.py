"""What a forked command calls first so that its training steps are written down, and end where a test wants."""
import dataclasses
import json
import os


@dataclasses.dataclass
class Watched:
    """Patches the trainer of the process it is called in.

    Args:
      file: takes a line of JSON a step: the step and the numbers of its records.
      signal: is sent to the process itself, so that nothing depends on how fast either of them is.
      step: the one before which the signal is sent; none by default.
    """
    file: str
    signal: int = 0
    step: int = -1

    def __call__(self) -> None:
        from pipelines import trainer
        take = trainer.Trainer.train_step

        def train_step(it, iterator):
            batch, step = next(iterator), int(it.global_step)
            if step == self.step:
                os.kill(os.getpid(), self.signal)
            with open(self.file, 'a') as file:
                file.write(json.dumps([step, batch['id'].numpy().tolist()]) + '\n')
            take(it, iter([batch]))
        trainer.Trainer.train_step = train_step

    def records(self) -> dict[int, list[int]]:
        """Step -> its records. Steps after the last checkpoint are taken twice; the second time counts."""
        with open(self.file) as file:
            return dict(json.loads(line) for line in file)
