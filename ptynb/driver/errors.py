"""What a cluster raises."""


class ClusterError(RuntimeError):
    """A cluster that can't be made or has broken; the message says why and what to do."""
