"""Hardware profiles that ship with DraftGym: other people's GPUs, from published figures.

Every part of such a profile says whether it is published or modelled, and where it is from.
`load.py` finds them by name, `build.py` makes them again from the public tables.
"""

from engine.profile.published.load import names, open_profile

__all__ = ["names", "open_profile"]
