"""Local differential privacy, another model: clients that trust no one."""
