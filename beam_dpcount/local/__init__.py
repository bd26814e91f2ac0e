"""Local differential privacy, another model: clients that trust no one."""

from beam_dpcount.local.transforms import LocalConvexRisk, LocalMedian

__all__ = ["LocalConvexRisk", "LocalMedian"]
