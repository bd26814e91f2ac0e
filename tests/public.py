"""All public names: those of the package, and of its modules that users see."""

from __future__ import annotations

import beam_dpcount as dp

HOMES = {"dp": dp, "dp.errors": dp.errors, "dp.local": dp.local, "dp.post": dp.post}
MODULES = {"errors", "local", "mechanisms", "metrics", "post"}
PUBLIC = {
    name: getattr(home, name)
    for home in HOMES.values()
    for name in home.__all__
    if name not in MODULES
}
