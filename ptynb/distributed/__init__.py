"""Rendezvous of ranks, sums and broadcasts."""
