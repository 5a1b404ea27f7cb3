"""A pytest plugin: inputs that Hypothesis draws are the same in every run, on every machine, and few.

To look for new counterexamples, draw more: `@settings(max_examples=5000, derandomize=False)`.
"""
import hypothesis

hypothesis.settings.register_profile('same everywhere', derandomize=True, database=None, deadline=None,
                                     max_examples=30)
hypothesis.settings.load_profile('same everywhere')
