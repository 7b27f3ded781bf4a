"""What the target says after a node: filters, penalties and keyed noise on its logits."""
