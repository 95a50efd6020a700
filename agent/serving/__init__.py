"""What listens: each module reads the store or the keyring, and knows nothing of the others."""
