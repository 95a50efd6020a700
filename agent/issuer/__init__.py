"""The embedded issuer's keys: when each signs, how they lie on disk, the cryptography, and the ring of them at work."""
