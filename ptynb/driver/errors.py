"""What a cluster raises."""


class ClusterError(RuntimeError):
    """A cluster that can't be made or has broken; the message says why and what to do."""


class PtynbWarning(UserWarning):
    """Something that stops nothing, and that the user should know of."""
