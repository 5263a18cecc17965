"""The embedded policy: a small model that answers the arithmetic world, and how it is made."""
