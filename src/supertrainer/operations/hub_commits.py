"""What was fetched from the Hub before a run was submitted: its job reads these commits from the cache, offline."""

from __future__ import annotations

from collections.abc import Mapping

from supertrainer.config.spine import Config
from supertrainer.core.files import read_json, write_json
from supertrainer.core.run_directory import RunDirectory
from supertrainer.core.sources import local_path

_NODES_OF = {"infer": ("model",)}  # of the other operations, both


def hub_nodes(config: Config) -> dict[str, str]:
    """The nodes of a config whose `source` is a Hub id: node -> id."""
    nodes = {name: getattr(config, name) for name in _NODES_OF.get(config.operation, ("model", "dataset"))}
    sources = {name: getattr(node, "source", None) for name, node in nodes.items() if node is not None}
    return {name: source for name, source in sources.items() if isinstance(source, str) and local_path(source) is None}


def record_commits(run: RunDirectory, config: Config, *, commits: Mapping[str, str]) -> None:
    """Writes hub.json.

    Args:
        commits: node -> the commit that the check read.
    """
    rows = {
        name: {"source": source, "revision": getattr(config, name).revision, "commit": commits[name]}
        for name, source in hub_nodes(config).items()
        if name in commits
    }
    if rows:
        write_json(run.hub_json, rows)


def at_recorded_commits(config: Config, run: RunDirectory) -> Config:
    """The config with the revisions that were recorded for these sources; its identity is that of the one given."""
    if not run.hub_json.is_file():
        return config
    changes = {}
    for name, recorded in read_json(run.hub_json).items():
        node = getattr(config, name, None)
        if node is not None and (node.source, node.revision) == (recorded["source"], recorded["revision"]):
            changes[name] = node.model_copy(update={"revision": recorded["commit"]})
    return config.model_copy(update=changes)
