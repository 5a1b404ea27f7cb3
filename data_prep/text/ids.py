"""Ids of the special subwords, equal in every subword model."""
PAD, BOS, EOS, UNK = 0, 1, 2, 3
