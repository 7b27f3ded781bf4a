"""Floor 6: training algorithms, callbacks and export.

`train.py` beside this package is the command; `import train` is always the package.
"""
