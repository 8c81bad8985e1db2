"""Films of runs: `film`."""
