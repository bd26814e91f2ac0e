"""What runs in workers: releases, bytes of state, and the DoFns."""
