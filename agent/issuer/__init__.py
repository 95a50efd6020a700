"""The embedded issuer's keys: when each signs, how they are stored, the cryptography, and the ring of them at work."""
