"""Bounds on the work that one directory may cause, because other users may be able to fill it."""

import errno

MAX_ENTRIES_IN_PLACE = 256
"""Entries of a directory in memory that the agent still reads on the event loop; a fuller directory is read in a thread."""
MAX_ENTRIES_LOOKED_AT = 4096
"""Entries of one directory that one look for leftovers examines."""
MAX_ENTRIES_REMOVED = 1000
"""Entries inside directories that one look removes; a later look continues."""
MAX_DEPTH = 8
"""Nested directories that are removed; the agent itself nests one."""
MAX_FILES = 64
"""Files of one generation; the agent writes fewer than 20."""
EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors of the process or the machine: they say nothing about the files, so no file is judged by them."""
