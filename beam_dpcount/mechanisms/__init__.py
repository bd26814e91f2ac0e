"""The mechanisms: one file each, and one entry in ALL."""

from beam_dpcount.mechanisms.base import HorizonError, Mechanism
from beam_dpcount.mechanisms.binary import BinaryTree
from beam_dpcount.mechanisms.smooth import SmoothBinary

ALL: tuple[type[Mechanism], ...] = (BinaryTree, SmoothBinary)

__all__ = ["ALL", "BinaryTree", "HorizonError", "Mechanism", "SmoothBinary"]
