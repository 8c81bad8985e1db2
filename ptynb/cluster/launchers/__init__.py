"""How engine processes are started: on this machine, by Slurm, by ssh."""
