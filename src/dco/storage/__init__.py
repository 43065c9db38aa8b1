"""Model files: save and load fitted estimators, and tell the versions that shape them."""

from dco.storage.saving import load, pack, save, versions

__all__ = ["load", "pack", "save", "versions"]
