"""Lines of text in, translations out, one line for each, by CTranslate2 on this machine's CPU.

    pip install ctranslate2 sentencepiece
    python translate.py 'A man rides a bicycle.'
    python translate.py --compute_type int8 < lines.txt > answers.txt

Beam, length penalty and lengths are those of landmark.json beside this file.
"""
import argparse
import itertools
import json
import pathlib
import sys
import unicodedata

import ctranslate2

BATCH = 64  # sentences decoded at once


class Translator:
    """A model folder at work.

    Args:
      folder: where the model lies, with its subwords and landmark.json.
      compute_type: the engine's name for the numbers it computes with, such as float32 or int8.
    """

    def __init__(self, folder, compute_type='float32'):
        folder = pathlib.Path(folder)
        config = json.loads((folder / 'landmark.json').read_text('utf-8'))['config']
        self.inference = config['inference']
        self.pieces = json.loads((folder / 'shared_vocabulary.json').read_text('utf-8'))
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self.end = json.loads((folder / 'config.json').read_text('utf-8'))['eos_token']
        self.subwords = load_subwords((folder / 'subwords.model').read_bytes())
        self.engine = ctranslate2.Translator(str(folder), compute_type=compute_type)

    def __call__(self, lines):
        """Translates lines, in any number: a list of dicts with `text`, `score` and `truncated`, in their order."""
        tokens = [[self.pieces[i] for i in self.subwords.encode(line)] for line in lines]
        longest = self.inference['max_input_length']
        results = [{'text': '', 'score': 0.0, 'truncated': len(row) >= longest} for row in tokens]
        todo = sorted((number for number, row in enumerate(tokens) if row), key=lambda number: len(tokens[number]))
        for start in range(0, len(todo), BATCH):  # lines of like length together
            batch = todo[start:start + BATCH]
            for number, (answer, score) in zip(batch, self.translate([tokens[number] for number in batch])):
                ids = [self.ids[token] for token in answer if token != self.end]
                results[number].update(text=self.subwords.decode(ids), score=score)
        return results

    def translate(self, sources):
        """Subwords, without an end symbol -> the best hypothesis, with it, and its score.

        The score is log probability over Wu et al.'s length penalty ((5 + length) / 6)^alpha (2016, eq. 14). The engine
        divides by length^alpha, so it is asked for `beam_size` hypotheses without a penalty, to choose from here. It
        stops once the likeliest candidate and `beam_size` in all have ended; Landmark's own search goes on as long as
        a longer one could win by its length, and with a beam of 1 it is greedy, as the engine's, only at alpha 0. No
        answer is longer than the longest source plus `extra_length`.
        """
        c = self.inference
        longest = min(max(map(len, sources)) + 1, c['max_input_length'])
        found = self.engine.translate_batch(
            sources, beam_size=c['beam_size'], num_hypotheses=c['beam_size'], length_penalty=0,
            max_input_length=c['max_input_length'], max_decoding_length=longest + c['extra_length'],
            min_decoding_length=0, return_end_token=True, return_scores=True)
        return [self._best(result) for result in found]

    def _best(self, result):
        """Of those that ended; if none did, of all."""
        scored = [(tokens, log_p / ((5 + len(tokens)) / 6) ** self.inference['alpha'])
                  for tokens, log_p in zip(result.hypotheses, result.scores)]
        return max(scored, key=lambda hypothesis: (hypothesis[0][-1] == self.end, hypothesis[1]))


def load_subwords(model):
    """What has `encode`, a line to ids, and `decode`, ids to a line, for the bytes of subwords.model."""
    if model.startswith(b'{'):
        return WordPieces(model)
    import sentencepiece
    return sentencepiece.SentencePieceProcessor(model_proto=model)


class WordPieces:
    """Wu et al.'s word pieces (2016, 4.1): each word cut greedily, the longest piece first."""

    def __init__(self, model):
        found = json.loads(model)
        self.normalization = found['normalization']
        self.texts = [piece.replace('▁', ' ').encode() for piece in found['pieces']]
        self.texts[:4] = b'', b'', b'', ' ⁇ '.encode()
        if found['byte_fallback']:  # the bytes come first, by names
            self.texts[4:260] = [bytes([i]) for i in range(256)]
        self.ids = {text: i for i, text in enumerate(self.texts)}  # of two, ▁ and byte 32, the mark
        self.longest = max(map(len, self.texts))

    def encode(self, line):
        if self.normalization == 'nfkc':
            line = unicodedata.normalize('NFKC', line)
        return [i for word in line.encode().split() for i in self._cut(b' ' + word)]

    def _cut(self, word):
        while word:
            size = next((n for n in range(min(len(word), self.longest), 0, -1) if word[:n] in self.ids), 0)
            if size:
                yield self.ids[word[:size]]
            elif not 0x80 <= word[0] < 0xC0:  # an unknown character's first byte stands for all of it
                yield 3
            word = word[size or 1:]

    def decode(self, ids):
        return b''.join(self.texts[i] for i in ids).strip().decode('utf-8', 'replace')


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('lines', nargs='*', metavar='LINE', help='text to translate (default: standard input, by lines)')
    flags.add_argument('--compute_type', choices=sorted(ctranslate2.get_supported_compute_types('cpu')),
                       default='float32', help='numbers to compute with (default: %(default)s)')
    args = flags.parse_args()
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding='utf-8')
    translator = Translator(pathlib.Path(__file__).parent, args.compute_type)
    size = 1 if not args.lines and sys.stdin.isatty() else 64 * BATCH  # what is typed is answered at once
    lines, done = (line.rstrip('\r\n') for line in args.lines or sys.stdin), 0
    while block := list(itertools.islice(lines, size)):
        for number, answer in enumerate(translator(block), done + 1):
            print(' '.join(answer['text'].splitlines()))  # an answer is one line, whatever the model says
            if answer['truncated']:
                print(f'line {number} is too long; only its beginning was read', file=sys.stderr)
        sys.stdout.flush()
        done += len(block)


if __name__ == '__main__':
    main()
