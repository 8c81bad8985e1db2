"""Initial guesses from results of other packages: one reader per package, chosen by the content of the file."""
