"""The Transformer after training: decoding, serving and attention maps."""
