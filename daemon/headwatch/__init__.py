"""The process around the indexer: time, threads, sockets, signals, retries and the command line."""

__version__ = "0.1.0"
