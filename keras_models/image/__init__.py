"""Image nets after training: inference, serving, scoring, bounding boxes and deep features."""
