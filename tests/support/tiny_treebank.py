"""Trees of a small grammar in Penn Treebank form, for tests."""
import random


def corpus(n: int, seed: int = 0) -> list[str]:
    """So many trees, over several lines, with traces, function tags and an empty outer bracket."""
    draw = random.Random(seed)

    def phrase(depth):
        noun = f'(NP-SBJ (DT the) (NN {draw.choice(["cat", "dog", "tree", "house"])}))'
        verb = draw.choice(['sees', 'knows'])
        if depth and draw.random() < .5:
            return f'(S {noun} (VP (VBZ {verb}) (SBAR (-NONE- 0) {phrase(depth - 1)})))'
        return f'(S {noun}\n    (VP (VBZ {verb}) (NP (CD {draw.randrange(40)}) (NNS birds))))'
    return [f'( {phrase(3)[:-1]} (. .)) )' for _ in range(n)]
