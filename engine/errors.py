"""The error that a user is meant to read: one sentence, no traceback, exit code 2."""

from models.errors import UserError

__all__ = ["UserError"]
