"""Treebanks: files, tf.Examples and batches of sentences and their constituency trees (Vaswani et al. 6.3).

A record is a pair as in wmt: its source is the words, its target the linear form of the tree (`trees.py`), so the code
for translation also trains and decodes parsing. The Beam job is in `trees/job.py`, the only part that needs Beam.
"""
import tensorflow as tf

from data_prep import wmt
from data_prep.text import subwords
from data_prep.trees.schema import LENGTHS, SPLITS, SUBWORDS, Config  # noqa: F401 (the names of a data module)

UNIT = 'trees'
TASK = 'tree'
JOB = 'data_prep.trees.job'
METRICS = ('complete_match', 'well_formed', 'bracket_precision', 'bracket_recall', 'right_branching_f1', 'bracket_f1')
Input = wmt.Input
decoder, decode, subword_model = wmt.decoder, wmt.decode, wmt.subword_model


def assets(folder: str, config: Input | None = None) -> subwords.Tokenizer:
    """Return what a served parser needs: the subwords, and the conversion of linear forms to trees."""
    from data_prep.trees import tree_graph
    del config
    return tree_graph.Parser(subword_model(folder))


def examples(serialized: list[bytes]) -> tuple[list[str], dict[str, list[str]]]:
    """Convert serialized tf.Examples to model inputs and text for people.

    Returns:
      Inputs of a model, the words; and text by column: `source`, `target`, the tree in brackets, and `kind`.
    """
    from data_prep.trees import tree_graph
    asked, columns = wmt.examples(serialized)
    if asked:
        found, _ = tree_graph.delinearise(tf.constant(asked), tf.constant(columns['target']))
        columns = {**columns, 'target': [tree.decode() for tree in found.numpy()]}
    return asked, columns
