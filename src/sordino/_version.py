"""The version, read by the build and by every file that sordino writes."""

__version__ = "0.1.0"
