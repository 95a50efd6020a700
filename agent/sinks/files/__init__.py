"""The sink that writes files, in the layout of a projected volume: whole or not at all, with the right owner and mode."""
