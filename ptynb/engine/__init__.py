"""What runs in an engine's process: the group, the loop and the worker that answers the kernel."""
