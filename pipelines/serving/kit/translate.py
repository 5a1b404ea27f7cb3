"""Translate lines of text on this machine's CPU, without TensorFlow: one line of output for each.

    pip install ctranslate2 sentencepiece                 # for a folder with model.bin
    pip install numpy onnxruntime sentencepiece           # for files of the suffix .onnx; tflite-runtime for .tflite
    python translate.py 'A man rides a bicycle.'
    python translate.py --compute_type int8 < lines.txt > answers.txt

Beam size, length penalty and length limits come from landmark.json beside this file.
"""
import argparse
import itertools
import json
import pathlib
import sys
import unicodedata

HYPOTHESES = 256  # most in one batch, those of at least one sentence
EOS = 2  # id of the end symbol


class Translator:
    """A translator loaded from a model folder.

    Args:
      folder: folder of the model, its subwords and landmark.json.
      compute_type: CTranslate2's number format, such as float32 or int8; other engines use that of their files.
    """

    def __init__(self, folder, compute_type='float32'):
        folder = pathlib.Path(folder)
        config = json.loads((folder / 'landmark.json').read_text('utf-8'))['config']
        self.inference = config['inference']
        self.batch = max(1, HYPOTHESES // self.inference['beam_size'])  # sentences
        self.subwords = load_subwords((folder / 'subwords.model').read_bytes())
        if (folder / 'model.bin').exists():
            self.translate = CTranslate2(folder, self.inference, compute_type)
        else:
            self.translate = load_search().Search(folder, self.inference)

    def __call__(self, lines):
        """Translate any number of lines: a list of dicts with `text`, `score` and `truncated`, in their order."""
        ids = [self.subwords.encode(line) for line in lines]
        longest = self.inference['max_input_length']
        results = [{**self.answer('', ''), 'score': 0.0, 'truncated': len(row) >= longest} for row in ids]
        todo = sorted((number for number, row in enumerate(ids) if row), key=lambda number: len(ids[number]))
        for start in range(0, len(todo), self.batch):  # batch lines of similar length
            batch = todo[start:start + self.batch]
            for number, hypotheses in zip(batch, self.translate([ids[number] for number in batch])):
                results[number].update(self.best(lines[number], hypotheses))
        return results

    def best(self, line, hypotheses):
        """Return the answer and score of the first hypothesis that is well formed, or else of the first."""
        answers = [{**self.answer(line, self.subwords.decode([i for i in ids if i != EOS])), 'score': score}
                   for ids, score in hypotheses]
        return next((each for each in answers if each.get('well_formed')), answers[0])

    def answer(self, line, text):
        """Return what is answered to a line for the text that its subwords make."""
        del line
        return {'text': text}

    def predict(self, lines):
        """Translate lines; return dicts with `answers`, of which there is one, and what a call returns."""
        return [{'answers': [result['text']], **result} for result in self(lines)]


class CTranslate2:
    """The engine's beam search.

    The score is log probability over Wu et al.'s length penalty ((5 + length) / 6)^alpha (2016, eq. 14). The engine
    divides by length^alpha instead, so it returns `beam_size` hypotheses without a penalty, of which the best is chosen
    here. The engine stops once the likeliest candidate and `beam_size` in all have ended; Landmark's own search
    continues while a longer one could win by its length. With a beam of 1 both are greedy only at alpha 0.
    """

    def __init__(self, folder, inference, compute_type):
        import ctranslate2
        self.inference = inference
        self.pieces = json.loads((folder / 'shared_vocabulary.json').read_text('utf-8'))
        self.ids = {piece: i for i, piece in enumerate(self.pieces)}
        self.engine = ctranslate2.Translator(str(folder), compute_type=compute_type)

    def __call__(self, sources):
        """Return hypotheses for ids without end symbol, as `search.Search` does.

        No output is longer than the longest source plus `extra_length`.
        """
        c, tokens = self.inference, [[self.pieces[i] for i in ids] for ids in sources]
        longest = min(max(map(len, sources)) + 1, c['max_input_length'])
        found = self.engine.translate_batch(
            tokens, beam_size=c['beam_size'], num_hypotheses=c['beam_size'], length_penalty=0,
            max_input_length=c['max_input_length'], max_decoding_length=longest + c['extra_length'],
            min_decoding_length=0, return_end_token=True, return_scores=True)
        return [self._best(result) for result in found]

    def _best(self, result):
        """Return the best finished hypothesis, or all; if none is finished, the best of all."""
        scored = [([self.ids[token] for token in tokens], log_p / ((5 + len(tokens)) / 6) ** self.inference['alpha'])
                  for tokens, log_p in zip(result.hypotheses, result.scores)]
        scored.sort(key=lambda hypothesis: (hypothesis[0][-1] != EOS, -hypothesis[1]))
        if not self.inference.get('prefer_well_formed'):
            return scored[:1]
        return [each for each in scored if each[0][-1] == EOS] or scored[:1]


def load_search():
    """Import the file search.py beside this one."""
    try:
        from pipelines.serving.kit import search
    except ImportError:  # a copy, with a copy of that file beside it
        import search  # type: ignore[no-redef]
    return search


def load_subwords(model):
    """Return an object with `encode`, line to ids, and `decode`, ids to line, from the bytes of subwords.model."""
    if model.startswith(b'{'):
        return WordPieces(model)
    import sentencepiece
    return sentencepiece.SentencePieceProcessor(model_proto=model)


class WordPieces:
    """Wu et al.'s word pieces (2016, 4.1): each word is split greedily, longest piece first."""

    def __init__(self, model):
        found = json.loads(model)
        self.normalization = found['normalization']
        self.texts = [piece.replace('▁', ' ').encode() for piece in found['pieces']]
        self.texts[:4] = b'', b'', b'', ' ⁇ '.encode()
        if found['byte_fallback']:  # bytes come first, by name
            self.texts[4:260] = [bytes([i]) for i in range(256)]
        self.ids = {text: i for i, text in enumerate(self.texts)}  # of ▁ and byte 32, which both read so, ▁
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
            elif not 0x80 <= word[0] < 0xC0:  # the first byte of an unknown character stands for it
                yield 3
            word = word[size or 1:]

    def decode(self, ids):
        return b''.join(self.texts[i] for i in ids).strip().decode('utf-8', 'replace')


load = Translator


def main(kind, file, description):
    """Answer lines with the model beside a program: its kind, its file and its description."""
    flags = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('lines', nargs='*', metavar='LINE', help='what to read (default: standard input, by lines)')
    flags.add_argument('--compute_type', default='float32',
                       help='number format CTranslate2 computes with, such as int8 (default: %(default)s)')
    args = flags.parse_args()
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding='utf-8')
    translator = kind(pathlib.Path(file).parent, args.compute_type)
    size = 1 if not args.lines and sys.stdin.isatty() else 64 * translator.batch  # answer typed lines immediately
    lines, done = (line.rstrip('\r\n') for line in args.lines or sys.stdin), 0
    while block := list(itertools.islice(lines, size)):
        for number, answer in enumerate(translator(block), done + 1):
            print(' '.join(answer['text'].splitlines()))  # print one line per input, whatever the model outputs
            if answer['truncated']:
                print(f'line {number} is too long; only its beginning was used', file=sys.stderr)
        sys.stdout.flush()
        done += len(block)


if __name__ == '__main__':
    main(Translator, __file__, __doc__)
