"""How clusters end, and how what is left of them is found."""
