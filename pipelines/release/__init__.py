"""From a blessed model to a served version: checks before a push, canaries and their promotion."""
