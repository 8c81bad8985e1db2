"""Code of the engine's process: the training loop, and the worker that runs it and answers the kernel."""
