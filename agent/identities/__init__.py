"""The identities that run: started, changed and withdrawn as the configuration and the cluster say."""
