"""Every byte format of states and shuffles; nothing here knows Beam."""
