"""Protocols of sources, and the connection to a source by its address."""

from __future__ import annotations

from ptynb import plugins
from ptynb.acquisition.messages import LiveSource, Message
from ptynb.data.source_address import Address, plugin_of, source_kind
from ptynb.exceptions import PluginError, about
from ptynb.plugins import Plugin


def connect(address: Address) -> LiveSource:
    """Connect to a source of patterns or positions."""
    kind = source_kind(address.kind)
    if kind is None:
        raise PluginError(
            f"The live source {address.kind!r} is none of ptynb's, and no plug-in of this name is installed; install "
            "the package that has it.",
            code="plugin.not-installed",
        )
    with about(kind.role):
        plugin = plugin_of(address.kind)
        if plugin is None:
            source: LiveSource = kind.loaded(kind.opens)(address)
            return source
        with plugins.guarded(plugin):
            return _OfPlugin(plugin, kind.loaded(kind.opens)(address))


class _OfPlugin(LiveSource):
    """The source of a plug-in, whose errors name it."""

    def __init__(self, plugin: Plugin, source: LiveSource) -> None:
        self._plugin, self._source = plugin, source

    def poll(self, timeout: float) -> list[Message]:
        """Return the messages that have come."""
        with plugins.guarded(self._plugin):
            return self._source.poll(timeout)

    def close(self) -> None:
        """Close its connections and files."""
        self._source.close()
