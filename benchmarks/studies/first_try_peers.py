"""A peer's first try on a data set of `first_try.py`, in the same minutes.

    .venv-bench/bin/python benchmarks/studies/first_try_peers.py images EXAMPLES --minutes 3
    .venv-bench/bin/python benchmarks/studies/first_try_peers.py pairs EXAMPLES --minutes 3

images  Keras's guide "Image classification from scratch": its small Xception, augmentation, batches of 128 and Adam at
        3e-4, at its 180 pixels or at the side of the images where that is smaller; the best epoch on validation.
pairs   Hugging Face's Marian from scratch: d_model 256, 3 + 3 layers, 4 heads, feed-forward 1,024, dropout 0.2, one BPE
        of 6,000 subwords, 4,000 tokens a batch, label smoothing 0.1, AdamW to 1e-3 in 1,000 steps, bfloat16; the mean
        of the last seven half epochs or the last weights, by validation loss; beam search of 4.

EXAMPLES is the data set that `prepare` made, so training, validation and test examples are ours. The minutes are for
training alone: imports, reading, subwords and the test are not counted, but ours are. The last line printed is JSON.
"""
import argparse
import glob
import json
import os
import pathlib
import random
import tempfile
import time
from collections.abc import Iterator


def main() -> None:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument('kind', choices=['images', 'pairs'])
    flags.add_argument('examples', help='a data set made by `prepare`')
    flags.add_argument('--minutes', type=float, required=True, help='of training')
    args = flags.parse_args()
    learn = {'images': images, 'pairs': pairs}[args.kind]
    print(json.dumps(learn(args.examples, 60 * args.minutes)))


def features(examples: str, split: str) -> Iterator:
    """Return the features of every record of a split, in order."""
    import tensorflow as tf
    for record in tf.data.TFRecordDataset(sorted(glob.glob(os.path.join(examples, f'Split-{split}', '*.tfrecord')))):
        yield tf.train.Example.FromString(record.numpy()).features.feature


# Images, by Keras.

def images(examples: str, seconds: float) -> dict:
    """Train the guide's net; return the test's top-1 error, its mean over classes, and the epochs begun."""
    import numpy as np
    import tensorflow as tf
    from tensorflow import keras
    keras.utils.set_random_seed(1)
    found = {split: [(each['image'].bytes_list.value[0], each['label'].int64_list.value[0])
                     for each in features(examples, split)] for split in ('train', 'validation', 'test')}
    sides = [min(tf.io.decode_image(image).shape[:2]) for image, _ in found['train'][:100]]
    side = min(180, int(np.median(sides)))
    classes = 1 + max(label for rows in found.values() for _, label in rows)

    def decode(image, label):
        image = tf.io.decode_image(image, channels=3, expand_animations=False)
        return tf.image.resize(image, [side, side]), label

    def batches(split):
        rows = found[split]
        data = tf.data.Dataset.from_tensor_slices(([image for image, _ in rows], [label for _, label in rows]))
        data = data.shuffle(len(rows), seed=1) if split == 'train' else data
        return data.map(decode, tf.data.AUTOTUNE).batch(128).prefetch(tf.data.AUTOTUNE)
    net = xception(side, classes)
    net.compile(keras.optimizers.Adam(3e-4), keras.losses.SparseCategoricalCrossentropy(from_logits=True), ['accuracy'])

    class Stop(keras.callbacks.Callback):
        end = time.monotonic() + seconds
        best, weights, epochs = -1.0, None, 0

        def on_train_batch_end(self, batch, logs=None):
            self.model.stop_training = self.model.stop_training or time.monotonic() > self.end

        def on_epoch_end(self, epoch, logs=None):
            self.epochs += 1
            if logs['val_accuracy'] >= self.best:
                self.best, self.weights = logs['val_accuracy'], self.model.get_weights()
    stop = Stop()
    net.fit(batches('train'), epochs=10 ** 6, validation_data=batches('validation'), callbacks=[stop], verbose=0)
    net.set_weights(stop.weights)
    labels = np.array([label for _, label in found['test']])
    wrong = np.argmax(net.predict(batches('test'), verbose=0), -1) != labels
    by_class = [wrong[labels == label].mean() for label in np.unique(labels)]
    return {'value': float(wrong.mean()), 'mean_class_error': float(np.mean(by_class)), 'epochs': stop.epochs,
            'side': side}


def xception(side: int, classes: int):
    """Return the guide's small version of Xception, with its augmentation."""
    from tensorflow.keras import Input, Model, layers

    def normal(x):
        return layers.BatchNormalization()(x)

    def separable(x, size):
        return normal(layers.SeparableConv2D(size, 3, padding='same')(x))
    inputs = Input([side, side, 3])
    x = layers.RandomRotation(0.1)(layers.RandomFlip('horizontal')(inputs))
    x = layers.Activation('relu')(normal(layers.Conv2D(128, 3, 2, 'same')(layers.Rescaling(1 / 255)(x))))
    for size in 256, 512, 728:
        before = layers.Conv2D(size, 1, 2, 'same')(x)
        x = separable(layers.Activation('relu')(x), size)
        x = separable(layers.Activation('relu')(x), size)
        x = layers.add([layers.MaxPooling2D(3, 2, 'same')(x), before])
    x = layers.GlobalAveragePooling2D()(layers.Activation('relu')(separable(x, 1024)))
    return Model(inputs, layers.Dense(classes)(layers.Dropout(0.25)(x)))


# Pairs of lines, by Hugging Face's Marian.

PAD, EOS, BOS = 0, 1, 2
TOKENS, WARMUP, RATE, KEPT = 4_000, 1_000, 1e-3, 7


def pairs(examples: str, seconds: float) -> dict:
    """Train a Marian model; return the test's sacreBLEU and the steps taken."""
    import sacrebleu
    import torch
    random.seed(1)
    torch.manual_seed(1)
    text = {split: [[each[side].bytes_list.value[0].decode() for side in ('source', 'target')]
                    for each in features(examples, split)] for split in ('train', 'validation', 'test')}
    pieces = subwords([line for row in text['train'] for line in row])
    rows = {split: [[pieces.encode(line) + [EOS] for line in row] for row in text[split]]
            for split in ('train', 'validation')}
    network = marian(pieces.get_piece_size())
    steps, kept = train(network, rows['train'], seconds)
    mean = {name: sum(each[name] for each in kept) / len(kept) if value.is_floating_point() else value
            for name, value in kept[-1].items()}
    network.eval()
    losses = []
    for weights in mean, kept[-1]:
        network.load_state_dict(weights)
        with torch.inference_mode():
            losses.append(sum(loss_of(network, batch).item() * len(batch) for batch in by_tokens(rows['validation'])))
    network.load_state_dict(mean if losses[0] < losses[1] else kept[-1])
    answers = translate(network, [pieces.encode(source) + [EOS] for source, _ in text['test']])
    answers = [pieces.decode(answer) for answer in answers]
    score = sacrebleu.corpus_bleu(answers, [[target for _, target in text['test']]]).score
    return {'value': score, 'steps': steps, 'examples': answers[:3]}


def subwords(lines: list[str]):
    """Return a BPE of 6,000 subwords, or of as many as the text supports."""
    import sentencepiece
    with tempfile.TemporaryDirectory() as folder:
        text = pathlib.Path(folder, 'text')
        text.write_text('\n'.join(lines), encoding='utf-8')
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=f'{folder}/bpe', model_type='bpe', vocab_size=6_000, hard_vocab_limit=False,
            pad_id=PAD, eos_id=EOS, bos_id=BOS, unk_id=3, minloglevel=2)
        return sentencepiece.SentencePieceProcessor(model_file=f'{folder}/bpe.model')


def marian(vocab_size: int):
    import transformers
    return transformers.MarianMTModel(transformers.MarianConfig(
        vocab_size=vocab_size, d_model=256, encoder_layers=3, decoder_layers=3, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, activation_function='relu', dropout=0.2,
        scale_embedding=True, pad_token_id=PAD, bos_token_id=BOS, eos_token_id=EOS, decoder_start_token_id=BOS,
        forced_eos_token_id=None, max_position_embeddings=1024, share_encoder_decoder_embeddings=True))


def padded(rows: list[list[int]]):
    import torch
    return torch.nn.utils.rnn.pad_sequence([torch.tensor(row[:256]) for row in rows], True, PAD)


def by_tokens(rows: list) -> list[list]:
    """Return batches of pairs of similar lengths, of about 4,000 tokens with padding, in random order."""
    random.shuffle(rows)
    ordered = sorted(rows, key=lambda row: max(map(len, row)))
    batches: list[list] = [[]]
    for row in ordered:
        if batches[-1] and (len(batches[-1]) + 1) * sum(map(len, row)) > TOKENS:
            batches.append([])
        batches[-1].append(row)
    random.shuffle(batches)
    return batches


def loss_of(network, batch: list):
    """Return the smoothed cross-entropy of a batch, a scalar."""
    import torch
    source, target = padded([row[0] for row in batch]), padded([row[1] for row in batch])
    before = torch.nn.functional.pad(target[:, :-1], (1, 0), value=BOS)
    with torch.autocast('cpu', torch.bfloat16):
        logits = network(input_ids=source, attention_mask=(source != PAD).long(), decoder_input_ids=before,
                         use_cache=False).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), ignore_index=PAD,
                                             label_smoothing=0.1)


def train(network, rows: list, seconds: float) -> tuple[int, list[dict]]:
    """Train until the time is over; return the steps taken, and the weights at half epochs and at the end."""
    import torch
    optimizer = torch.optim.AdamW(network.parameters(), RATE, (0.9, 0.98), 1e-9)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / WARMUP, (WARMUP / (step + 1)) ** 0.5))
    end, kept, steps = time.monotonic() + seconds, [], 0
    network.train()
    while time.monotonic() < end:
        batches = by_tokens(rows)
        for number, batch in enumerate(batches, 1):
            loss = loss_of(network, batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
            steps += 1
            over = time.monotonic() > end
            if over or number in (len(batches) // 2, len(batches)):
                kept = [*kept, {name: value.clone() for name, value in network.state_dict().items()}][-KEPT:]
            if over:
                break
    return steps, kept


def translate(network, sources: list[list[int]]) -> list[list[int]]:
    """Return the ids of the answers, by beam search, in batches of similar lengths."""
    import torch
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    found: list[list[int]] = [[] for _ in sources]
    for start in range(0, len(order), 128):
        batch = order[start:start + 128]
        ids = padded([sources[i] for i in batch])
        with torch.inference_mode():
            answers = network.generate(ids, attention_mask=(ids != PAD).long(), num_beams=4,
                                       max_length=min(300, ids.shape[1] + 50))
        for i, answer in zip(batch, answers.tolist()):
            found[i] = [token for token in answer if token > BOS]
    return found


if __name__ == '__main__':
    main()
