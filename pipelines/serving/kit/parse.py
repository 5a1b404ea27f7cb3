"""Parse sentences on this machine's CPU, without TensorFlow: one line of output for each, its tree in brackets.

    pip install ctranslate2 sentencepiece                 # for a folder with model.bin
    pip install numpy onnxruntime sentencepiece           # for files of the suffix .onnx; tflite-runtime for .tflite
    python parse.py 'The cat sees the dog .'
    python parse.py < sentences.txt > trees.txt

Words are separated by spaces. Beam size, length penalty and length limits come from landmark.json beside this file.
"""
import re

try:
    from pipelines.serving.kit import translate
except ImportError:  # a copy, with a copy of that file beside it
    import translate  # type: ignore[no-redef]

WORD = re.compile(r'\S+', re.ASCII)
ANY_TAG = 'XX'


class Parser(translate.Translator):
    """A parser loaded from a model folder: a translator of sentences to trees in their linear form."""

    def answer(self, line, text):
        """Return the tree that a linear form gives to a sentence, and whether it was well formed."""
        tree, well_formed = bracketed(line, text)
        return {'text': tree, 'well_formed': well_formed}


def bracketed(sentence, text):
    """Convert a linear form to a tree in brackets, over exactly the sentence's words.

    A model may output anything; what is not well formed is repaired:

    1. Text that does not begin with an opening bracket is put into (S.
    2. The first bracket is the sentence's. It closes only at the end, so everything after it stays inside.
    3. A closing bracket closes the nearest open bracket of its label, and all brackets opened inside that. If there is
       none, it is dropped.
    4. Tags take the words in order. If their numbers differ, words are distributed evenly over the tags, in order: of
       the words that fall to one tag the first takes it, the others become XX beside it, and a tag without a word is
       dropped. Without any tag, all words become XX at the end of the sentence's bracket.
    5. A bracket left without words is dropped.

    Returns:
      The tree, empty for a sentence without words, and whether no repair was needed.
    """
    words = [word.replace('(', '-LRB-').replace(')', '-RRB-') for word in WORD.findall(sentence)]
    if not words:
        return '', False
    tokens = [token[0] * (token[0] in '()') + re.sub('[()]', '', token) for token in WORD.findall(text)]
    intact, ended = bool(tokens) and tokens[0][0] == '(' and len(tokens[0]) > 1, False
    if not intact:
        tokens.insert(0, '(S')
    tags = [token for token in tokens if token[0] not in '()']
    leaves = iter(distributed(words, tags or [ANY_TAG]))
    levels = []  # label and parts of each open bracket, the innermost last
    for token in tokens:
        intact = intact and not ended
        label = token[1:]
        if token[0] not in '()':
            levels[-1][1].extend(next(leaves))
        elif not label:
            intact = False
        elif token[0] == '(':
            levels.append((label, []))
        else:
            level = max((n for n, (other, _) in enumerate(levels) if other == label), default=-1)
            intact = intact and level == len(levels) - 1
            ended = ended or level == 0
            if level >= 0:
                intact = close(levels, max(level, 1)) and intact
    close(levels, 1)
    [(label, parts)] = levels
    tree = f'({label}{"".join([*parts, *next(leaves, [])])})'
    return tree, intact and ended and len(tags) == len(words)


def distributed(words, tags):
    """Distribute tagged words evenly over tags, in order: a list for each tag."""
    shares = [[] for _ in tags]
    for number, word in enumerate(words):
        share = (2 * number + 1) * len(tags) // (2 * len(words))
        shares[share].append(f' ({ANY_TAG if shares[share] else tags[share]} {word})')
    return shares


def close(levels, level):
    """Close the open brackets from a level on, dropping those without words; return whether none was dropped."""
    kept = True
    while len(levels) > level:
        label, parts = levels.pop()
        kept = kept and bool(parts)
        levels[-1][1].extend([f' ({label}', *parts, ')'] if parts else [])
    return kept


load = Parser

if __name__ == '__main__':
    translate.main(Parser, __file__, __doc__)
