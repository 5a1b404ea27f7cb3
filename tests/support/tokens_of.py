"""Print the ids of lines by a SavedModel's tokenizer, and the text of those ids, as JSON."""
import json
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401 (registers the tokenizer's ops)

if __name__ == '__main__':
    model = tf.saved_model.load(sys.argv[1])
    ids = model.tokenize(tf.constant(json.load(sys.stdin)))
    print(json.dumps([ids.numpy().tolist(), [line.decode() for line in model.detokenize(ids).numpy()]]))
