"""What ptynb warns of."""


class PtynbWarning(UserWarning):
    """Something that stops nothing, and that the user should know of."""
