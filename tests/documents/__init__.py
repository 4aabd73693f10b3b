"""What documents name, checked against the program and the tree: paths, options, parameters, metrics,
variables, targets of make, suites, packages, and other names of the source.

`facts.Facts` is what there is; `check.findings` compares a text with it. `tests/test_docs.py` says
which texts. A finding has the place, the word, and the nearest word that would be right.
"""
