"""Requests to a Kubernetes API server; the only importer of kubernetes_asyncio.

Read in this order: `credentials` (its address and the agent's credentials), `credential_files` (the same, read anew after a
change), `connection` (the sockets), `client` (one request), `errors` (the reaction to a refusal), `watch` (a list and its changes),
`clients` (the process's one client for each kubeconfig).
"""
