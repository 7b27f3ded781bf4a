"""Who proposes the tokens of the candidate tree."""
