"""The mechanisms: one file each, and one entry in ALL, but for Endless, Unbounded, Sparse,
SlidingBLT, CombBLT, SlidingBlocks, DecayedBLT, SingleSteps and Differences, which do not release
prefix sums of a horizon.
"""

from beam_dpcount.mechanisms.base import Mechanism
from beam_dpcount.mechanisms.binary import BinaryTree
from beam_dpcount.mechanisms.binned import Binned
from beam_dpcount.mechanisms.blt import BLT, NormalizedBLT
from beam_dpcount.mechanisms.bridged import BridgedKAry
from beam_dpcount.mechanisms.decayed_blt import DecayedBLT
from beam_dpcount.mechanisms.differences import Differences
from beam_dpcount.mechanisms.faded import FadedBLT
from beam_dpcount.mechanisms.honaker import Honaker
from beam_dpcount.mechanisms.kary import KAry
from beam_dpcount.mechanisms.profiled import Endless, ProfiledBLT
from beam_dpcount.mechanisms.simple import Simple1, Simple2, TwoLevel
from beam_dpcount.mechanisms.single_steps import SingleSteps
from beam_dpcount.mechanisms.sliding_blocks import SlidingBlocks
from beam_dpcount.mechanisms.sliding_blt import CombBLT, SlidingBLT
from beam_dpcount.mechanisms.smooth import SmoothBinary
from beam_dpcount.mechanisms.smooth_laplace import SmoothLaplace
from beam_dpcount.mechanisms.sparse import Sparse
from beam_dpcount.mechanisms.square_root import SquareRoot
from beam_dpcount.mechanisms.unbounded import Unbounded

ALL: tuple[type[Mechanism], ...] = (
    Simple1,
    Simple2,
    TwoLevel,
    BinaryTree,
    Honaker,
    SmoothBinary,
    SmoothLaplace,
    KAry,
    BridgedKAry,
    SquareRoot,
    Binned,
    BLT,
    NormalizedBLT,
    ProfiledBLT,
    FadedBLT,
)

__all__ = [
    "ALL",
    "BLT",
    "BinaryTree",
    "Binned",
    "BridgedKAry",
    "CombBLT",
    "DecayedBLT",
    "Differences",
    "Endless",
    "FadedBLT",
    "Honaker",
    "KAry",
    "Mechanism",
    "NormalizedBLT",
    "ProfiledBLT",
    "Simple1",
    "Simple2",
    "SingleSteps",
    "SlidingBLT",
    "SlidingBlocks",
    "SmoothBinary",
    "SmoothLaplace",
    "Sparse",
    "SquareRoot",
    "TwoLevel",
    "Unbounded",
]
