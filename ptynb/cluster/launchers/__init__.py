"""Start of engine processes on this machine, by Slurm, or by ssh."""
