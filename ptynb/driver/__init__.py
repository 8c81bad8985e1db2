"""What runs in the notebook's kernel: the cluster and the reconstruction's session."""
