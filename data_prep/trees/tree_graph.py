"""Convert linear forms back to bracketed trees, as TensorFlow operations; the last step of an exported parser.

A model may output anything. Well-formed output becomes the tree it encodes; any other output is repaired to a tree over
exactly the sentence's words, by these rules, in this order:

1. Text that does not begin with an opening bracket is put into (S. 2. The first bracket is the sentence's. It closes
only at the end, so everything after it stays inside. 3. A closing bracket closes the nearest open bracket of its label,
and all brackets opened inside that. If there is none,
   it is dropped.
4. Tags take the words in order. If their numbers differ, words are distributed evenly over the tags, in order: of the
   words that fall to one tag the first takes it, the others become XX beside it, and a tag without a word is dropped.
   (For a small model that rarely counted right, F1 was 23.8 with this rule, and 19.9 with surplus words at the end.)
   Without any tag, all words become XX at the end of the sentence's bracket.
5. A bracket left without words is dropped.
"""
import tensorflow as tf

from data_prep.text import subwords
from data_prep.trees.trees import ANY_TAG


class Parser(subwords.Tokenizer):
    """Subwords of sentences and linear trees; outputs bracketed trees."""

    def answer(self, text, ids):
        """Return `text` [n], trees, and `well_formed` [n], for [n] sentences and their predicted ids [n, length]."""
        trees, well_formed = delinearise(text, self.detokenize(ids))
        return {'text': trees, 'well_formed': well_formed}


@tf.function(input_signature=[tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.string)], autograph=False)
def delinearise(sentences: tf.Tensor, texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Convert linear forms to bracketed trees, in the format of `trees.Tree`.

    Args:
      sentences: [n] strings, words separated by spaces. Brackets in them become -LRB- and -RRB-.
      texts: [n] strings, the linear forms.

    Returns:
      [n] strings, empty for a sentence without words; and [n] whether no repair was needed.
    """
    words = tf.strings.split(sentences)
    words = words.with_flat_values(_escaped(words.flat_values))
    many = tf.cast(words.row_lengths(), tf.int32)
    tokens, begins = _tokens(texts)
    opens, closes, tags = _kinds(tokens)
    label = tf.strings.regex_replace(tokens, '^[()]', '')
    ends, intact = _ends(opens, closes, tokens != '', label)
    intact &= begins & tf.reduce_all(opens | closes | tags | (tokens == ''), 1)

    T = tf.shape(tokens)[1]
    leaves, here, rest = _leaves(words, tags, label)
    count = tf.cumsum(here, axis=1)  # [n, T], words up to here, this one included
    count = tf.concat([count, count[:, -1:], many[:, None]], 1)  # [n, T + 2], then at T and at the sentence's end
    before = count[:, :T]  # at an opening bracket, words before it
    full = opens & (tf.gather(count, tf.maximum(ends, 0), batch_dims=1) > before)
    closing = tf.math.bincount(tf.where(full, ends, T + 2), minlength=T + 3, maxlength=T + 3, axis=-1)[:, :T + 2]
    piece = tf.where(full, tf.strings.join([' (', label]), leaves)
    end = tf.fill([tf.shape(many)[0]], '')
    piece = tf.concat([piece, tf.stack([end, rest], 1)], 1)
    trees = tf.strings.reduce_join(tf.strings.join([piece, _brackets(closing)]), axis=1)
    well_formed = intact & tf.reduce_all(full == opens, 1) & (tf.reduce_sum(tf.cast(tags, tf.int32), 1) == many)
    return tf.where(many > 0, tf.strings.strip(trees), ''), well_formed & (many > 0)


def _leaves(words: tf.RaggedTensor, tags: tf.Tensor, label: tf.Tensor):
    """Distribute words over tags.

    Returns:
      [n, T] the words at each tag, tagged; [n, T] their number; and [n] the words of sentences without a tag.
    """
    n, T = tf.unstack(tf.shape(tags))
    many, m = tf.cast(words.row_lengths(), tf.int32)[:, None], tf.reduce_sum(tf.cast(tags, tf.int32), 1)[:, None]
    dense = tf.concat([words.to_tensor(''), tf.fill([n, 1], '')], 1)  # [n, W], W at least 1
    j = tf.range(tf.shape(dense)[1])[None]
    owner = tf.where(j < many, (2 * j + 1) * m // tf.maximum(2 * many, 1), 0)  # number of the tag; j itself if m is n
    where = tf.where(tags)  # [tags, 2], row and place
    places = tf.RaggedTensor.from_value_rowids(tf.cast(where[:, 1], tf.int32), where[:, 0], tf.cast(n, tf.int64))
    places = tf.pad(places.to_tensor(0), [[0, 0], [0, 1]])
    place = tf.gather(places, owner, batch_dims=1)
    begins = tf.concat([tf.ones([n, 1], tf.bool), owner[:, 1:] != owner[:, :-1]], 1)
    tag = tf.where(begins & (m > 0), tf.gather(label, place, batch_dims=1), ANY_TAG)
    leaf = tf.where(j < many, tf.strings.join([' (', tag, ' ', dense, ')']), '')
    dealt = (j < many) & (m > 0)
    segment = tf.boolean_mask(tf.range(n)[:, None] * T + place, dealt)
    leaves = tf.strings.unsorted_segment_join(tf.boolean_mask(leaf, dealt), segment, n * T)
    here = tf.math.unsorted_segment_sum(tf.ones_like(segment), segment, n * T)
    rest = tf.where(m[:, 0] > 0, '', tf.strings.reduce_join(leaf, axis=1))
    return tf.reshape(leaves, [n, T]), tf.reshape(here, [n, T]), rest


def _escaped(words):
    return tf.strings.regex_replace(tf.strings.regex_replace(words, r'\(', '-LRB-'), r'\)', '-RRB-')


def _tokens(texts: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    """Split [n] strings into [n, T] tokens, padded; return also whether the first was an opening bracket.

    If it was not, one is inserted. A bracket inside a token, as in `(NP)X`, has no meaning there and is removed.
    """
    found = tf.strings.split(texts)
    flat = found.flat_values
    first = tf.strings.substr(flat, 0, 1)
    bracket = (first == '(') | (first == ')')
    inner = tf.strings.regex_replace(flat, '[()]', '')
    found = found.with_flat_values(tf.where(bracket, tf.strings.join([first, inner]), inner))
    dense = found.to_tensor('')
    dense = tf.concat([dense, tf.fill([tf.shape(dense)[0], 1], '')], 1)  # at least one
    begins = tf.strings.regex_full_match(dense[:, 0], r'\(.+')
    shifted = tf.concat([tf.fill([tf.shape(dense)[0], 1], '(S'), dense], 1)
    return tf.where(begins[:, None], tf.pad(dense, [[0, 0], [0, 1]], constant_values=''), shifted), begins


def _kinds(tokens: tf.Tensor):
    """Return masks [n, T] of opening brackets, closing brackets and tags; brackets without a label are in none."""
    first, long = tf.strings.substr(tokens, 0, 1), tf.strings.length(tokens) > 1
    opens, closes = (first == '(') & long, (first == ')') & long
    return opens, closes, (tokens != '') & (first != '(') & (first != ')')


def _ends(opens, closes, used, label):
    """Return where every opening bracket closes.

    Args:
      opens, closes, used: [n, T], whether a token is an opening bracket, a closing bracket, or not empty.
      label: [n, T], labels of the brackets.

    Returns:
      [n, T] positions: T for a bracket that nothing closes, T + 1 for the sentence's; and [n] whether every closing
      bracket matched the innermost open one, and the last of them closed the sentence's.
    """
    n, T = tf.unstack(tf.shape(label))
    rows = tf.range(n)
    levels = tf.range(tf.reduce_max(tf.reduce_sum(tf.cast(opens, tf.int32), 1)))[None]  # [1, D]
    label = tf.reshape(tf.unique(tf.reshape(label, [-1])).idx, [n, T])  # numbers compare faster

    def step(t, stack, depth, ends, intact, closed):
        own, opening, closing = label[:, t], opens[:, t], closes[:, t]
        intact &= ~(closed & used[:, t])  # nothing comes after the sentence
        there = tf.gather(label, stack, batch_dims=1)  # [n, D], labels of open brackets, the innermost last
        found = tf.reduce_max(tf.where((there == own[:, None]) & (levels < depth[:, None]), levels, -1), 1)
        matches = closing & (found >= 0)
        intact &= ~closing | (found == depth - 1)
        closed |= matches & (found == 0)
        keep = tf.where(matches, tf.maximum(found, 1), depth)  # the sentence's stays open
        leaves = (levels >= keep[:, None]) & (levels < depth[:, None])  # [n, D]
        where = tf.where(leaves)
        at = tf.stack([tf.cast(where[:, 0], tf.int32), tf.gather_nd(stack, where)], 1)
        ends = tf.tensor_scatter_nd_update(ends, at, tf.fill([tf.shape(at)[0]], t))
        level = tf.where(opening, keep, 0)
        stack = tf.where(opening[:, None] & (levels == level[:, None]), t, stack)
        return t + 1, stack, keep + tf.cast(opening, tf.int32), ends, intact, closed
    start = (tf.constant(0), tf.zeros([n, tf.size(levels)], tf.int32), tf.zeros([n], tf.int32),
             tf.where(opens, T, -1), tf.ones([n], tf.bool), tf.zeros([n], tf.bool))
    _, _, _, ends, intact, closed = tf.while_loop(lambda t, *_: t < T, step, start)
    sentence = tf.stack([rows, tf.zeros_like(rows)], 1)
    return tf.tensor_scatter_nd_update(ends, sentence, tf.fill([n], T + 1)), intact & closed


def _brackets(counts: tf.Tensor) -> tf.Tensor:
    """Map numbers [...] to strings of that many closing brackets."""
    most = tf.range(tf.maximum(tf.reduce_max(counts), 0) + 1)
    texts = tf.strings.reduce_join(tf.where(most[:, None] > most, ')', ''), axis=-1)  # strings of 0, 1, … brackets
    return tf.gather(texts, counts)
