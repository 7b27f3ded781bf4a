"""Learning algorithms by name, all discounting by engine time.

`registry` is the table, `base` what they have in common, `timing` how time enters, `arguments` what
they are made with; the rest is one file a family.
"""
