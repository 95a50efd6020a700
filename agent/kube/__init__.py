"""The way to a Kubernetes API server; the only importer of kubernetes_asyncio.

Read in this order: `access` (where it is, and as whom we ask), `credentials` (the same, read anew after a change), `client`
(one request), `refusals` (what a refusal calls for), `watch` (a list and what changes in it), `clients` (the process's one
client for each kubeconfig).
"""
