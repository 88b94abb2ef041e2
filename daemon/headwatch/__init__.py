"""The process around the indexer: time, threads, sockets, signals, retries and the command line."""

from importlib.metadata import version

__version__ = version("headwatch")
