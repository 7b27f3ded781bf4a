"""Whether speculation changed what the target says: the same texts, and the law of its tokens."""
