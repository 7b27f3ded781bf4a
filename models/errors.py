"""The one error class whose message is meant for the person at the keyboard.

Commands print it on one line and exit with code 2. Every floor above raises this same class;
what went wrong, and what to do about it, is said where it is raised.
"""


class UserError(Exception):
    """What came, what was expected and what to do, in one sentence."""
