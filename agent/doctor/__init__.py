"""`wi-agent doctor`: walks the chain from source to endpoint for each identity, and says where it is broken.

It looks and does not touch: no lock is taken, no file written, no key made, and at most one exchange is asked for.
"""
