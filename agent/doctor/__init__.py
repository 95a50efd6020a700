"""`wi-agent doctor`: walks the chain from source to endpoint for each identity, and reports the broken links.

The doctor only reads: it takes no lock, writes no file, makes no key, and asks a cloud for at most one exchange.
"""
