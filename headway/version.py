"""The version of headway, for those who may not import headway itself."""

__version__ = "0.1.0"
