"""Beam search over the encoder and the decoder of a folder, without TensorFlow (Vaswani et al. 2017, 6.1)."""
import numpy as np

try:
    from pipelines.serving.kit import networks
except ImportError:  # a copy, with a copy of that file beside it
    import networks  # type: ignore[no-redef]

PAD, BOS, EOS = 0, 1, 2
NEVER = -1e9  # log probability of a hypothesis that is none


class Search:
    """Beam search with the networks of a folder.

    Args:
      inference: `beam_size`, `alpha`, `extra_length`, `max_input_length` and perhaps `prefer_well_formed`, see
        `translate.py`.
    """

    def __init__(self, folder, inference):
        found = networks.load(folder)
        self.encoder, self.decoder, self.inference = found['encoder'], found['decoder'], inference
        self.count = inference['beam_size'] if inference.get('prefer_well_formed') else 1

    def __call__(self, sources):
        """Return hypotheses for ids without end symbol: a list for each of ids, with the end symbol, and their score.

        It holds the best, or with `prefer_well_formed` the best `beam_size` that finished.
        """
        longest = self.inference['max_input_length'] - 1
        rows = [[*ids[:longest], EOS] for ids in sources]
        source = np.full([len(rows), max(map(len, rows))], PAD, np.int32)
        for row, ids in zip(source, rows):
            row[:len(ids)] = ids
        return self.search(source)

    def search(self, source):
        """Find the `count` hypotheses with the highest log P / length penalty for every sentence [B, S], padded.

        Of the 2 K best continuations of a sentence's K open hypotheses, those among the first K that end are finished;
        the first K that do not, stay open. A sentence leaves the search when no open hypothesis can beat the last of
        its `count` best finished ones, or at its greatest length, where the best open one is its result if none was
        finished.
        """
        B, K = len(source), self.inference['beam_size']
        longest = (source != PAD).sum(1) + self.inference['extra_length']
        sentences, best = np.arange(B), [[([], NEVER)] * self.count for _ in source]  # in the search; what is finished
        encoded = self.encoder(ids=source)
        cache = {name.replace('source', 'past'): np.zeros([B * K, 0, *array.shape[2:]], np.float32)
                 for name, array in encoded.items()}
        hypotheses, log_p = np.zeros([B, K, 0], np.int32), np.tile(np.float32([0] + [NEVER] * (K - 1)), [B, 1])
        last, step = np.full([B, K], BOS, np.int32), 0
        while len(sentences):
            found = self.decoder(last=last, step=np.array([step], np.int32), source=source, **encoded, **cache)
            score, beam, token = continued(log_p, found.pop('logits'), 2 * K)
            longer = np.concatenate([taken(hypotheses, beam), token[..., np.newaxis]], 2)
            step += 1
            for row, i in np.argwhere(token[:, :K] == EOS):
                finished = longer[row, i].tolist(), float(score[row, i] / self.penalty(step))
                those = best[sentences[row]]
                those[:] = sorted([*those, finished], key=lambda each: -each[1])[:self.count]
            stay = np.argsort(token == EOS, 1, kind='stable')[:, :K]
            hypotheses, log_p, last = taken(longer, stay), taken(score, stay), taken(token, stay)
            at_most = log_p[:, 0] / self.penalty(longest)  # log P can only fall
            for row in np.flatnonzero(longest == step):
                if not best[sentences[row]][0][0]:
                    best[sentences[row]][0] = hypotheses[row, 0].tolist(), float(at_most[row])
            go_on = (longest > step) & (at_most > [best[sentence][-1][1] for sentence in sentences])
            slots = (taken(beam, stay) + K * np.arange(len(sentences))[:, np.newaxis])[go_on].ravel()
            cache = {f'past_{name}': array[slots] for name, array in found.items()}
            if not go_on.all():
                sentences, longest, source, hypotheses, log_p, last = (
                    each[go_on] for each in (sentences, longest, source, hypotheses, log_p, last))
                encoded = {name: array[go_on] for name, array in encoded.items()}
        return [[each for each in those if each[0]] for those in best]

    def penalty(self, length):
        """Return the length penalty of Wu et al. 2016, eq. (14)."""
        return ((5 + length) / 6) ** self.inference['alpha']


def continued(log_p, logits, n):
    """Return the n best continuations of each sentence's hypotheses, best first.

    Args:
      log_p: [B, K], of the hypotheses.
      logits: [B, K, V], of the next id.

    Returns:
      Log probability, hypothesis and id, [B, n] each.
    """
    highest = logits.max(-1, keepdims=True)
    sums = np.exp(logits - highest).sum(-1, keepdims=True)
    scores = (log_p[..., np.newaxis] + logits - highest - np.log(sums)).reshape(len(logits), -1)
    best = np.sort(np.argpartition(-scores, n, 1)[:, :n], 1)  # the first of equals is the first
    best = taken(best, np.argsort(-taken(scores, best), 1, kind='stable'))
    return taken(scores, best), best // logits.shape[2], (best % logits.shape[2]).astype(np.int32)


def taken(values, which):
    """Return values [B, n, …] at places of each row [B, k]: [B, k, …]."""
    return values[np.arange(len(values))[:, np.newaxis], which]
