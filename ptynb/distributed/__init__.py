"""How ranks find each other, and sum and broadcast."""
