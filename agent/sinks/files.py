"""Files on a shared volume, laid out as kubelet's AtomicWriter lays out a projected volume."""

from agent.settings import Duration, FileMode, Settings


class FilesSettings(Settings, tag="files", tag_field="type"):
    """Where, for whom, and under which names."""

    directory: str
    mount_path: str | None = None
    """Where the consumer mounts the directory, if elsewhere."""
    mode: FileMode = FileMode(0o640)
    group: str | int | None = None
    owner: str | int | None = None
    names: dict[str, str] = {}
    grace: Duration = Duration(30)
    """How long a replaced generation lives on."""
    adopt: bool = True
    """False where the agent shares its uid with the workload."""
