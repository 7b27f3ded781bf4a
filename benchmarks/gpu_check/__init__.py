"""Everything that only a card can tell, in one command without a network: `make gpu-check`.

`command.py` has the order, `frame.py` runs sections one after another whatever becomes of each,
`subject.py` makes what they are run on; every section has a file of its own.
"""
