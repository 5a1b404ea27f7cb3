"""Beam search over the encoder and the decoder of a folder, without TensorFlow (Vaswani et al. 2017, 6.1)."""
import numpy as np

try:
    from pipelines.serving.kit import networks
except ImportError:  # a copy, with a copy of that file beside it
    import networks  # type: ignore[no-redef]

BOS, EOS = 1, 2
NEVER = -1e9  # log probability of a hypothesis that is none


class Search:
    """Beam search with the networks of a folder.

    Args:
      inference: `beam_size`, `alpha`, `extra_length` and `max_input_length`, see `translate.py`.
    """

    def __init__(self, folder, inference):
        found = networks.load(folder)
        self.encoder, self.decoder, self.inference = found['encoder'], found['decoder'], inference

    def __call__(self, sources):
        """Return the ids of the best hypothesis, with its end symbol, and its score, for ids without one."""
        longest = self.inference['max_input_length'] - 1
        return [self.search(np.array([[*ids[:longest], EOS]], np.int32)) for ids in sources]

    def search(self, source):
        """Find the hypothesis with the highest log P / length penalty, for one sentence [1, S].

        Of the 2 K best continuations of the K open hypotheses, those among the first K that end are finished; the first
        K that do not, stay open. The search ends when no open one can beat the best finished one.
        """
        K, longest = self.inference['beam_size'], source.shape[1] + self.inference['extra_length']
        encoded = self.encoder(ids=source)
        cache = {name.replace('source', 'past'): np.zeros([K, 0, *array.shape[2:]], np.float32)
                 for name, array in encoded.items()}
        hypotheses, log_p = np.zeros([K, 0], np.int32), np.array([0.0] + [NEVER] * (K - 1), np.float32)
        last, best = np.full([1, K], BOS, np.int32), ([], NEVER)
        for step in range(longest):
            found = self.decoder(last=last, step=np.array([step], np.int32), source=source, **encoded, **cache)
            score, beam, token = continued(log_p, found.pop('logits')[0], 2 * K)
            longer = np.concatenate([hypotheses[beam], token[:, np.newaxis]], 1)
            for i in np.flatnonzero(token[:K] == EOS):
                if (finished := float(score[i] / self.penalty(step + 1))) > best[1]:
                    best = longer[i].tolist(), finished
            stay = np.flatnonzero(token != EOS)[:K]
            hypotheses, log_p, last = longer[stay], score[stay], token[np.newaxis, stay]
            if log_p[0] / self.penalty(longest) <= best[1]:
                break
            cache = {f'past_{name}': array[beam[stay]] for name, array in found.items()}
        return best if best[0] else (hypotheses[0].tolist(), float(log_p[0] / self.penalty(longest)))

    def penalty(self, length):
        """Return the length penalty of Wu et al. 2016, eq. (14)."""
        return ((5 + length) / 6) ** self.inference['alpha']


def continued(log_p, logits, n):
    """Return the n best continuations of hypotheses, best first: log probability, hypothesis and id.

    Args:
      log_p: [K], of the hypotheses.
      logits: [K, V], of the next id.
    """
    highest = logits.max(-1, keepdims=True)
    scores = log_p[:, np.newaxis] + logits - highest - np.log(np.exp(logits - highest).sum(-1, keepdims=True))
    best = np.argpartition(-scores, n, None)[:n]
    best = best[np.argsort(-scores.flat[best], kind='stable')]
    return scores.flat[best], best // logits.shape[1], (best % logits.shape[1]).astype(np.int32)
