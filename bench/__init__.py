"""Measurements, each as a ratio to a floor that is measured in the same run: `make bench`, or `make bench ARGS=memory`.

Absolute figures say more of the machine than of the agent; a ratio can be compared. The floor of start and memory is a
bare aiohttp server of the same interpreter, that of the files sink the system calls that it cannot do without.
"""
