"""`python -m bench [start] [memory] [files] [aws] [providers] [kubernetes] …`: all programs where none is named."""

import sys
from collections.abc import Callable

from bench import aws, dialects, files, herd, kubernetes, memory, metadata, providers, start

PROGRAMS: dict[str, Callable[[], None]] = {
    "start": start.main,
    "memory": memory.main,
    "files": files.main,
    "aws": aws.main,
    "providers": providers.main,
    "kubernetes": kubernetes.main,
    "metadata": metadata.main,
    "herd": herd.main,
    "dialects": dialects.main,
}


def main(wanted: list[str]) -> int:
    if unknown := set(wanted) - set(PROGRAMS):
        print(f"python -m bench: there is no {', '.join(sorted(unknown))}: there are {', '.join(PROGRAMS)}", file=sys.stderr)
        return 2
    for name in wanted or PROGRAMS:
        PROGRAMS[name]()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
