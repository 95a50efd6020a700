"""Files on a volume that others can reach too: whole or not at all, with the right owner, and only where they are meant to be."""
