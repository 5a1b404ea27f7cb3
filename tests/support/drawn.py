"""A pytest plugin that makes Hypothesis draw few inputs, the same in every run and on every machine.

To look for new counterexamples, draw more: `@settings(max_examples=5000, derandomize=False)`.
"""
import hypothesis

hypothesis.settings.register_profile('same everywhere', derandomize=True, database=None, deadline=None,
                                     max_examples=30)
hypothesis.settings.load_profile('same everywhere')
