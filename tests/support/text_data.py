"""A tiny parallel corpus, number words in English and German, and a configuration that learns it."""
import pathlib
import random

WORDS = {'zero': 'null', 'one': 'eins', 'two': 'zwei', 'three': 'drei', 'four': 'vier', 'five': 'fünf', 'six': 'sechs',
         'seven': 'sieben', 'eight': 'acht', 'nine': 'neun'}

CONFIG = """
data:
  module: data_prep.wmt
  folder: {folder}
  train: [train.tsv]
  validation: [validation.tsv]
  test: [test.tsv]
  vocab_size: 90
input:
  buckets: [8, 16]
  tokens: 256
model:
  module: keras_models.transformer
  N: 1
  d_model: 32
  d_ff: 64
  h: 2
  warmup_steps: 60
inference:
  extra_length: 8
  max_input_length: 24
train:
  steps: 20
  log_every: 5
  checkpoint_every: 10
  validate_every: 20
  average_checkpoints: 2
evaluate:
  batch_size: 16
  slices: [kind]
  thresholds:
    bleu: {{min: 0, max_drop: 100}}
"""

# Overrides by which it is learned in 300 steps, and which bound what a format may lose; FLAGS are they as flags.
LEARNED = ['train.steps=300', 'train.checkpoint_every=100', 'train.log_every=100', 'train.validate_every=300',
           'model.d_model=64', 'model.warmup_steps=100', 'model.P_drop=0', 'input.tokens=1024',
           'evaluate.drift={bleu: {max_drop: 0.5}}', 'evaluate.thresholds={bleu: {min: 80, max_drop: 100}}']
FLAGS = [part for each in LEARNED for part in ('--set', each)]


def number_words(n: int) -> list[str]:
    """`n` lines of 1 to 5 words in turn, which is learned; in a longer one, two answers may be almost as good."""
    draw = random.Random(0)
    return [' '.join(draw.choices(list(WORDS), k=1 + i % 5)) for i in range(n)]


def write_pairs(folder: pathlib.Path, split: str, n: int, seed: int) -> None:
    """Writes `n` pairs of number words in English and German, of two kinds, to `<split>.tsv`."""
    draw = random.Random(seed)
    with open(folder / f'{split}.tsv', 'w', encoding='utf-8') as file:
        for _ in range(n):
            words = draw.choices(list(WORDS), k=draw.randint(1, 9))
            file.write(f'{" ".join(words)}\t{" ".join(WORDS[word] for word in words)}\t'
                       f'{"short" if len(words) < 5 else "long"}\n')
