"""Networks, their weights, where these come from, and how the draft head is trained."""
